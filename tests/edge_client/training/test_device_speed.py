"""The micro-benchmark: its measurements, and when stored results are reused."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch

from edge_client.system.hardware import profile
from edge_client.system.hardware.processor import Processor
from edge_client.training import device_speed
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.step import draw_step
from edge_client.training.step_graphs.running.arena import StepSession
from edge_client.training.step_graphs.running.graph_file import read_step_graph
from schemas.values import MeasuredSpeed, TrainerName
from tests.edge_client.training.reference_block import INPUT_SHAPE, ReferenceBlock

CHIP = Processor(model="BCM2835", board="Raspberry Pi 3", cores=4, architecture="aarch64")
MEASURED = (
    MeasuredSpeed(training_macs_per_s=1.5e9, memory_bytes_per_s=2e9, resident_bytes=200_000_000),
    MeasuredSpeed(trainer="onnx", training_macs_per_s=2e9, resident_bytes=85_000_000),
)


@pytest.mark.parametrize("trainer", get_args(TrainerName))
def test_a_measurement_contains_training_and_memory_speed(trainer: TrainerName) -> None:
    found = device_speed.measure(trainer, 0.1)
    assert found.trainer == trainer
    assert found.training_macs_per_s is not None
    # At least one complete step is counted: 32 examples, three passes of 2.44 million MACs.
    assert device_speed.BLOCK_MACS == 32 * 32 * 9 * 256 + 32 * 256 * 10 == 2_441_216
    assert found.training_macs_per_s > 0
    assert found.memory_bytes_per_s is not None
    assert found.memory_bytes_per_s > 0
    assert found.resident_bytes is not None
    # At least the pages of numpy.
    assert found.resident_bytes > 30_000_000


def test_without_a_trainer_only_memory_is_measured() -> None:
    found = device_speed.measure(None, 0.02)
    assert found.training_macs_per_s is None
    assert found.resident_bytes is None
    assert found.memory_bytes_per_s is not None


def test_speed_with_onnxruntime_is_measured_without_torch_and_onnx() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('torch', 'onnx', 'onnxscript')))\n"
        "from edge_client.training.device_speed import measure\n"
        "print(measure('onnx', 0.1).training_macs_per_s)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout) > 0


def test_the_reference_step_is_that_of_the_reference_block() -> None:
    """With UPDATE_GOLDEN=1 it is drawn again."""
    torch.manual_seed(0)
    drawn = draw_step(ReferenceBlock(), INPUT_SHAPE)
    if os.environ.get("UPDATE_GOLDEN"):
        device_speed.REFERENCE_STEP.write_bytes(drawn)
    kept = read_step_graph(device_speed.REFERENCE_STEP)
    random = np.random.default_rng(0)
    arrays = {name: random.uniform(0.1, 0.2, kept.inputs[name]).astype(np.float32) for name in kept.arrays}
    inputs, labels = device_speed.reference_batch()
    sessions = [StepSession(data, arrays) for data in (kept.data, drawn)]
    losses = [session.run({names.INPUTS: inputs, names.LABELS: labels}) for session in sessions]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    ours, theirs = (session.gradients for session in sessions)
    assert ours.keys() == theirs.keys()
    for name, gradient in ours.items():
        np.testing.assert_allclose(gradient, theirs[name], rtol=1e-2, atol=1e-4 * np.abs(gradient).max())


def test_a_measurement_is_reused_at_the_next_start(tmp_path: Path) -> None:
    path = profile.speeds_file(tmp_path / "state")
    profile.keep_speeds(path, MEASURED, CHIP)
    assert profile.recall_speeds(path, CHIP) == MEASURED


@pytest.mark.parametrize("other", [{"cores": 1}, {"model": "BCM2711"}, {"architecture": "armv7l"}])
def test_a_measurement_of_another_processor_is_not_reused(tmp_path: Path, other: dict[str, str]) -> None:
    path = profile.speeds_file(tmp_path)
    profile.keep_speeds(path, MEASURED, CHIP)
    assert profile.recall_speeds(path, replace(CHIP, **other)) == ()


@pytest.mark.parametrize(
    "content", [b"", b"\xff\0", b"[]", b'{"of": "a", "speeds": [{"resident_bytes": -1}]}']
)
def test_an_invalid_stored_measurement_is_ignored(tmp_path: Path, content: bytes) -> None:
    path = profile.speeds_file(tmp_path)
    path.write_bytes(content)
    assert profile.recall_speeds(path, CHIP) == ()
    assert profile.recall_speeds(tmp_path / "nowhere", CHIP) == ()
