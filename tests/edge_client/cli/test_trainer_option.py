"""The trainers that `edge-client run` announces, and what its log says of them."""

import argparse
import logging
from pathlib import Path

import pytest

from edge_client.cli.commands.run import make_profile
from edge_client.system.hardware.processor import processor
from edge_client.system.hardware.profile import keep_speeds, speeds_file
from edge_client.training import training_device
from edge_client.training.choice import CUDA_BYTES
from schemas.errors import ConfigError
from schemas.values import Accelerator, MeasuredSpeed
from tests.edge_client.training.test_choice import installed

AUTO = argparse.Namespace(tier=None, flower=None, trainer="auto", device="auto")


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


@pytest.mark.parametrize(
    ("words", "reason"),
    [({"trainer": "onnx"}, "for onnxruntime there is --providers"), ({"flower": "app:app"}, "a Flower app")],
)
def test_a_device_is_asked_for_in_vain_where_torchs_own_training_is_not_used(
    words: dict[str, str], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(monkeypatch, "torch", "onnxruntime")
    args = argparse.Namespace(**{**vars(AUTO), "device": "cuda", **words})
    with pytest.raises(ConfigError, match=reason) as refused:
        make_profile(args, tmp_path)
    assert refused.value.remedy == "leave it out"


def test_the_speeds_of_the_device_that_trains_are_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = Accelerator(kind="cuda", name="Orin", memory_bytes=8 * 10**9, shares=True)
    here, there, other = (
        MeasuredSpeed(trainer=trainer, device=device, training_macs_per_s=1e9)
        for trainer, device in (("torch", "cpu"), ("torch", "cuda"), ("onnx", "cpu"))
    )
    keep_speeds(speeds_file(tmp_path), (there, here, other), processor())
    monkeypatch.setattr(training_device, "choose_device", lambda wanted: card if wanted == "auto" else None)
    announced = make_profile(AUTO, tmp_path)
    assert (announced.trains_on, announced.speeds) == (card, (there, other))
    announced = make_profile(argparse.Namespace(**{**vars(AUTO), "device": "cpu"}), tmp_path)
    assert (announced.trains_on, announced.speeds) == (None, (here, other))
