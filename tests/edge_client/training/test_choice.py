"""Which trainer a device announces."""

import pytest

from edge_client.training import choice
from schemas.errors import ConfigError


def installed(monkeypatch: pytest.MonkeyPatch, *packages: str, runtime: str = "1.20.0") -> None:
    monkeypatch.setattr(choice, "is_installed", lambda name: name in packages)
    monkeypatch.setattr(choice, "release", lambda name: runtime if name in packages else None)


def test_torch_goes_first_where_it_fits_into_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "torch", "onnxruntime")
    assert choice.choose_trainers("auto", free_memory=4 * 10**9) == ("torch", "onnx")
    assert choice.choose_trainers("auto", free_memory=None) == ("torch", "onnx")
    assert choice.choose_trainers("auto", free_memory=400 * 10**6) == ("onnx",)


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
