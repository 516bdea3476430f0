"""Findings about disk space, memory and the clock."""

import shutil
from pathlib import Path

import pytest

from edge_client.cli.doctor.machine import clock, disk, kernel_synchronised, room
from edge_client.system.hardware.memory import Memory


def with_free(free: int | None, limit: int | None = None) -> Memory:
    return Memory(physical=10**9, available=free, limit=limit, free=free)


@pytest.mark.parametrize(
    ("free_mb", "level"), [(5000, "ok"), (999, "warning"), (99, "failure"), (0, "failure")]
)
def test_a_disk_is_judged_by_its_free_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_mb: int, level: str
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=free_mb * 1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    found = disk(tmp_path / "state")
    assert found.level == level
    assert (found.remedy == "") == (level == "ok")


def test_a_state_folder_that_cannot_be_created_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = disk(tmp_path / "file" / "state")
    assert found.level == "failure"
    assert "cannot be written" in found.detail


@pytest.mark.parametrize(
    ("memory", "level", "remedy"),
    [
        (with_free(10**9), "ok", ""),
        (with_free(200_000_000), "warning", "close other programs"),
        (with_free(50_000_000), "failure", "close other programs"),
        (with_free(50_000_000, limit=128_000_000), "failure", "MemoryMax"),
        (with_free(None), "warning", "/proc"),
    ],
)
def test_memory_is_judged_by_what_a_process_may_still_allocate(
    memory: Memory, level: str, remedy: str
) -> None:
    found = room(memory)
    assert found.level == level
    assert remedy in found.remedy


def test_a_limit_that_slows_the_process_down_is_named() -> None:
    memory = Memory(physical=10**9, available=10**9, limit=128_000_000, free=0, slows=True)
    found = room(memory)
    assert "the limit is 128 MB (memory.high: above it everything is a hundred times slower)" in found.detail
    assert "MemoryHigh" in found.remedy


def test_training_with_onnxruntime_needs_less_memory_than_with_torch() -> None:
    assert room(with_free(200_000_000), "onnx").level == "ok"
    assert room(with_free(110_000_000), "onnx").level == "warning"


@pytest.mark.parametrize(("synchronised", "level"), [(True, "ok"), (False, "warning"), (None, "warning")])
def test_an_unsynchronised_clock_is_reported(synchronised: bool | None, level: str) -> None:
    found = clock(lambda: synchronised)
    assert found.level == level
    assert bool(found.remedy) == (level == "warning")


def test_the_kernel_reports_whether_its_clock_is_synchronised() -> None:
    assert kernel_synchronised() in (True, False)
