"""Which device torch trains on: what its trial finds, and what is asked for and not there."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch

from edge_client.cli.doctor.machine import training_devices
from edge_client.cli.main import main
from edge_client.system.child_process import NoAnswer
from edge_client.training import training_device
from schemas.errors import ConfigError
from schemas.values import Accelerator
from tests.edge_client.system.hardware.trees import tree
from tests.edge_client.training.stand_in_device import Card, aten

ORIN = Accelerator(kind="cuda", name="Orin", memory_bytes=8 * 10**9, free_bytes=5 * 10**9, shares=True)
JETSON = {"dev/nvhost-gpu": ""}
no_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")


def with_answer(monkeypatch: pytest.MonkeyPatch, **figures: float) -> None:
    trial = training_device.DeviceTrial(found=ORIN, **{"difference": 1e-6, "speed_up": 8.0, **figures})
    monkeypatch.setattr(training_device, "ask", lambda *_, **__: trial)


@pytest.fixture
def jetson(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a board with a GPU, and a torch that is built for it."""
    monkeypatch.setattr(training_device, "has_file", lambda package, name: name == "lib/libtorch_cuda.so")
    return tree(tmp_path / "root", JETSON)


def test_nothing_is_tried_where_nothing_seems_to_be_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_device, "ask", pytest.fail)
    monkeypatch.setattr(training_device.sys, "platform", "linux")
    assert training_device.choose_device("auto", tree(tmp_path / "none", {})) is None
    # A GPU, and a torch for the processor alone.
    monkeypatch.setattr(training_device, "has_file", lambda *_: False)
    assert training_device.choose_device("auto", tree(tmp_path / "jetson", JETSON)) is None
    assert training_device.choose_device("cpu") is None


def test_an_accelerator_that_is_right_and_faster_trains(
    jetson: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with_answer(monkeypatch)
    with caplog.at_level(logging.INFO):
        assert training_device.choose_device("auto", jetson) == ORIN
    assert "torch trains on cuda, Orin: 8.0 x the processor" in caplog.text


@pytest.mark.parametrize(
    ("figures", "reason"),
    [
        ({"difference": 0.02}, "gives other gradients: 0.02 of the largest, at most 0.001 allowed"),
        ({"speed_up": 0.8}, "is 0.80 x as fast as the processor"),
    ],
)
def test_an_accelerator_that_is_wrong_or_slower_does_not(
    figures: dict[str, float],
    reason: str,
    jetson: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with_answer(monkeypatch, **figures)
    assert training_device.choose_device("auto", jetson) is None
    assert reason in caplog.text
    if "speed_up" in figures:
        assert training_device.choose_device("cuda", jetson) == ORIN
        return
    with pytest.raises(ConfigError, match=reason):
        training_device.choose_device("cuda", jetson)


def test_a_driver_that_ends_the_process_leaves_training_to_the_processor(
    jetson: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def crash(*_: Any, **__: Any) -> training_device.DeviceTrial:
        raise NoAnswer("ended its process with signal 11")

    monkeypatch.setattr(training_device, "ask", crash)
    assert training_device.choose_device("auto", jetson) is None
    assert "torch trains on the processor: cuda ended its process with signal 11" in caplog.text


def test_doctor_says_what_torch_trains_on_and_why_not(
    jetson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(training_devices("auto", tmp_path / "none")) == []
    with_answer(monkeypatch)
    (found,) = training_devices("auto", jetson)
    assert (found.level, found.detail) == ("ok", "torch trains on cuda, Orin: 8.0 x the processor")
    with_answer(monkeypatch, difference=0.02)
    (found,) = training_devices("auto", jetson)
    assert found.level == "warning"
    assert found.detail.startswith("torch trains on the processor: cuda gives other gradients: 0.02")
    (found,) = training_devices("cuda", jetson)
    assert (found.level, found.remedy) == ("failure", training_device.REMEDY)


def test_an_apple_chip_is_a_candidate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_device.sys, "platform", "darwin")
    monkeypatch.setattr(training_device.platform, "machine", lambda: "arm64")
    assert list(training_device.candidates(tmp_path)) == ["mps"]


@no_cuda
def test_a_device_that_is_asked_for_and_not_there_ends_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trial's real process, with a torch that is built without CUDA."""
    words = ["--device", "cuda", "--data", "digits", "--state-dir", str(tmp_path)]
    assert main(["run", *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "--device cuda: torch cannot train there: failed: Torch not compiled with CUDA enabled" in line
    assert line.endswith("or train where that is possible: --device auto")


def test_gradients_on_a_device_are_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_device, "SECONDS", 0.01)
    wanted, _ = training_device.train_block(training_device.PROCESSOR)
    with Card():
        found, steps = training_device.train_block(training_device.TrainingDevice("card:0"))
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-5
    assert steps > 0


def test_a_kernel_that_the_device_lacks_fails_the_trial() -> None:
    def refuse(func: Any, args: tuple[Any, ...]) -> None:
        if func is aten.convolution.default:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    with Card(refuse), pytest.raises(RuntimeError, match="no kernel image"):
        training_device.train_block(training_device.TrainingDevice("card:0"))
