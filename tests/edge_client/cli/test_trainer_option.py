"""The trainers that `edge-client run` announces, and what its log says of them."""

import argparse
import logging
from pathlib import Path

import pytest

from edge_client.cli.commands.run import make_profile
from edge_client.training.choice import CUDA_BYTES
from tests.edge_client.training.test_choice import installed

AUTO = argparse.Namespace(tier=None, flower=None, trainer="auto")


def test_an_outdated_onnxruntime_is_not_announced_and_logged_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(monkeypatch, "torch", "onnxruntime", runtime="1.13.1")
    with caplog.at_level(logging.INFO):
        announced = make_profile(AUTO, tmp_path)
    assert announced.trainers == ("torch",)
    assert "onnxruntime" in announced.software
    assert "onnxruntime 1.13.1 is too old for step graphs: pip install 'onnxruntime>=1.17'" in caplog.text
    assert "trains with torch" in caplog.text


def test_a_current_onnxruntime_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(monkeypatch, "onnxruntime")
    with caplog.at_level(logging.INFO):
        assert make_profile(AUTO, tmp_path).trainers == ("onnx",)
    assert "too old" not in caplog.text


def test_a_torch_with_cuda_states_what_it_takes_from_the_first_start_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_client.training.choice.has_file", lambda package, name: package == "torch")
    measured = make_profile(AUTO, tmp_path).speed_with("torch")
    assert measured is not None
    assert measured.resident_bytes == CUDA_BYTES
    monkeypatch.undo()
    assert make_profile(AUTO, tmp_path).speed_with("torch") is None
