"""Which trainer a device announces."""

import sys
from importlib.machinery import FileFinder, SourceFileLoader
from pathlib import Path

import pytest

from edge_client.system import libraries
from edge_client.system.hardware.processor import processor
from edge_client.system.hardware.profile import keep_speeds, note_process, recall_speeds, speeds_file
from edge_client.training import choice
from schemas.errors import ConfigError
from schemas.values import MeasuredSpeed


def installed(monkeypatch: pytest.MonkeyPatch, *packages: str, runtime: str = "1.20.0") -> None:
    monkeypatch.setattr(choice, "is_installed", lambda name: name in packages)
    monkeypatch.setattr(choice, "release", lambda name: runtime if name in packages else None)


def test_torch_goes_first_where_it_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch", "onnxruntime")
    assert choice.choose_trainers("auto", free_memory=4 * 10**9) == ("torch", "onnx")
    assert choice.choose_trainers("auto", free_memory=None) == ("torch", "onnx")
    assert choice.choose_trainers("auto", free_memory=400 * 10**6) == ("onnx",)


def test_a_torch_that_takes_more_needs_more_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch", "onnxruntime")
    needed = {"torch": 687_000_000, "onnx": 90_000_000}
    # 687 MB and half of it for a network.
    assert choice.choose_trainers("auto", free_memory=1_031_000_000, needed=needed) == ("torch", "onnx")
    assert choice.choose_trainers("auto", free_memory=1_030_000_000, needed=needed) == ("onnx",)


def test_a_torch_with_cuda_is_assumed_to_take_more_until_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "torch" / "lib").mkdir(parents=True)
    (tmp_path / "torch" / "__init__.py").touch()
    monkeypatch.setattr(
        libraries,
        "find_spec",
        lambda name: FileFinder(str(tmp_path), (SourceFileLoader, [".py"])).find_spec(name),
    )
    assert choice.process_bytes() == {"torch": 330_000_000, "onnx": 90_000_000}
    (tmp_path / "torch" / "lib" / "libtorch_cuda.so").touch()
    assert choice.process_bytes() == {"torch": 687_000_000, "onnx": 90_000_000}
    measured = [MeasuredSpeed(trainer="torch", resident_bytes=500_000_000), MeasuredSpeed(trainer="onnx")]
    assert choice.process_bytes(measured) == {"torch": 500_000_000, "onnx": 90_000_000}


def test_the_first_import_of_torch_is_measured_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measured(*sizes: int, imports: bool = True) -> int | None:
        """What the state folder knows after a process that has these sizes before and after."""
        monkeypatch.delitem(sys.modules, "torch", raising=False)
        monkeypatch.setattr(choice, "resident_bytes", iter(sizes).__next__)
        further = {"torch": sys} if imports else {}
        monkeypatch.setattr(
            choice,
            "make_trainer",
            lambda name, **_: [monkeypatch.setitem(sys.modules, *item) for item in further.items()],
        )
        choice.make_measured_trainer("torch", state=tmp_path)
        found = recall_speeds(speeds_file(tmp_path), processor())
        return found[0].resident_bytes if found else None

    assert measured(70_000_000, imports=False) is None
    # The import took 577 MB, and a process that is ready to train takes 110 MB besides.
    assert measured(70_000_000, 647_000_000) == 687_000_000
    assert measured(70_000_000, 300_000_000) == 687_000_000


def test_a_measured_speed_is_not_overwritten(tmp_path: Path) -> None:
    speed = MeasuredSpeed(trainer="torch", training_macs_per_s=1e9, resident_bytes=300_000_000)
    other = MeasuredSpeed(trainer="onnx", training_macs_per_s=1e9, resident_bytes=90_000_000)
    noted = MeasuredSpeed(trainer="torch", resident_bytes=500_000_000)
    keep_speeds(speeds_file(tmp_path), [speed], processor())
    note_process(tmp_path, noted)
    assert recall_speeds(speeds_file(tmp_path), processor()) == (speed,)
    keep_speeds(speeds_file(tmp_path), [other], processor())
    note_process(tmp_path, noted)
    assert [found.trainer for found in recall_speeds(speeds_file(tmp_path), processor())] == ["torch", "onnx"]


def test_the_only_trainer_is_taken_whatever_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch")
    assert choice.choose_trainers("auto", free_memory=100) == ("torch",)
    installed(monkeypatch, "onnxruntime")
    assert choice.choose_trainers("auto", free_memory=100) == ("onnx",)


def test_the_owners_choice_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch", "onnxruntime")
    assert choice.choose_trainers("onnx", free_memory=10**10) == ("onnx",)
    assert choice.choose_trainers("torch", free_memory=100) == ("torch",)


def test_a_missing_trainer_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "onnxruntime")
    with pytest.raises(ConfigError, match="torch is not installed: pip install"):
        choice.choose_trainers("torch", free_memory=None)
    installed(monkeypatch)
    with pytest.raises(ConfigError, match="nothing can train here"):
        choice.choose_trainers("auto", free_memory=None)


def test_an_old_runtime_is_refused_with_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "onnxruntime", runtime="1.13.1")
    with pytest.raises(ConfigError, match=r"onnxruntime 1\.13\.1 is too old"):
        choice.choose_trainers("onnx", free_memory=None)
