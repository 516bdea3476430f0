"""The micro-benchmark: its measurements, and when stored results are reused."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.system.hardware import speed_cache
from edge_client.system.hardware.processor import Processor
from edge_client.training import device_speed
from schemas.values import MeasuredSpeed

CHIP = Processor(model="BCM2835", board="Raspberry Pi 3", cores=4, architecture="aarch64")
MEASURED = MeasuredSpeed(training_macs_per_s=1.5e9, memory_bytes_per_s=2e9, resident_bytes=200_000_000)


def test_a_measurement_contains_training_and_memory_speed() -> None:
    found = device_speed.measure(0.1)
    assert found.training_macs_per_s is not None
    # At least one complete step is counted: 32 examples, three passes of 2.44 million MACs.
    assert device_speed.BLOCK_MACS == 32 * 32 * 9 * 256 + 32 * 256 * 10 == 2_441_216
    assert found.training_macs_per_s > 0
    assert found.memory_bytes_per_s is not None
    assert found.memory_bytes_per_s > 0
    assert found.resident_bytes is not None
    # At least the pages of numpy and torch.
    assert found.resident_bytes > 50_000_000


def test_without_torch_only_memory_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    found = device_speed.measure(0.02)
    assert found.training_macs_per_s is None
    assert found.resident_bytes is None
    assert found.memory_bytes_per_s is not None


def test_a_measurement_is_reused_at_the_next_start(tmp_path: Path) -> None:
    path = speed_cache.kept_at(tmp_path / "state")
    speed_cache.keep(path, MEASURED, CHIP)
    assert speed_cache.recall(path, CHIP) == MEASURED


@pytest.mark.parametrize("other", [{"cores": 1}, {"model": "BCM2711"}, {"architecture": "armv7l"}])
def test_a_measurement_of_another_processor_is_not_reused(tmp_path: Path, other: dict[str, str]) -> None:
    path = speed_cache.kept_at(tmp_path)
    speed_cache.keep(path, MEASURED, CHIP)
    assert speed_cache.recall(path, replace(CHIP, **other)) is None


@pytest.mark.parametrize("content", [b"", b"\xff\0", b"[]", b'{"of": "a", "speed": {"resident_bytes": -1}}'])
def test_an_invalid_stored_measurement_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = speed_cache.kept_at(tmp_path)
    path.write_bytes(content)
    assert speed_cache.recall(path, CHIP) is None
    assert speed_cache.recall(tmp_path / "nowhere", CHIP) is None
