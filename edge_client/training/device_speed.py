"""Measures in about three seconds per trainer how fast the board trains and moves memory.

Training is measured on a reference block: a 3x3 convolution over 32 channels of 16x16, batch normalisation
and a layer of ten outputs, in batches of 32; gradients of the inputs are computed too. onnxruntime runs the
block's step graph in `reference_step.onnx`.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_client.system.process_memory import resident_bytes
from schemas.values import TRAINING_PASSES, MeasuredSpeed, TrainerName

SECONDS = 3.0
TRAINING_SHARE = 0.8  # share of the time for training; the rest is for memory
CHANNELS, SIDE, CLASSES, BATCH = 32, 16, 10, 32
BLOCK_MACS = CHANNELS * CHANNELS * 9 * SIDE * SIDE + CHANNELS * SIDE * SIDE * CLASSES
COPIED_BYTES = 32 * 1024 * 1024  # larger than any cache of a board
REFERENCE_STEP = Path(__file__).with_name("reference_step.onnx")
"""The step graph of `tests.edge_client.training.reference_block`, whose first operation scales the inputs."""


def measure(trainer: TrainerName | None, seconds: float = SECONDS) -> MeasuredSpeed:
    """Measure for about this many seconds, with the trainer's default number of threads.

    Without a trainer only memory is measured. Measure onnxruntime before torch, which stays in memory.
    """
    steps = None if trainer is None else STEPS[trainer](seconds * TRAINING_SHARE)
    resident = None if steps is None else resident_bytes()
    source = np.zeros(COPIED_BYTES, np.uint8)
    target = np.ones_like(source)
    copies = _rate(lambda: np.copyto(target, source), seconds * (1 - TRAINING_SHARE))
    return MeasuredSpeed(
        trainer=trainer or "torch",
        training_macs_per_s=None if steps is None else steps * BATCH * TRAINING_PASSES * BLOCK_MACS,
        # Each copy reads and writes.
        memory_bytes_per_s=copies * 2 * COPIED_BYTES,
        resident_bytes=resident,
    )


def _with_torch(seconds: float) -> float:
    import torch
    from torch import nn

    from edge_client.training.memory_format import channels_innermost

    block = nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(CHANNELS * SIDE * SIDE, CLASSES),
    )
    inputs, labels = map(torch.from_numpy, reference_batch())

    def step() -> None:
        block.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(block(inputs.requires_grad_()), labels).backward()  # type: ignore[no-untyped-call]

    with channels_innermost(block, inputs):
        return _rate(step, seconds)


def _with_onnxruntime(seconds: float) -> float:
    from edge_client.training.step_graphs import names
    from edge_client.training.step_graphs.running.arena import StepSession
    from edge_client.training.step_graphs.running.graph_file import read_step_graph

    graph = read_step_graph(REFERENCE_STEP)
    session = StepSession(
        graph.data, {name: np.full(graph.inputs[name], 0.01, np.float32) for name in graph.arrays}
    )
    inputs, labels = reference_batch()
    return _rate(lambda: session.run({names.INPUTS: inputs, names.LABELS: labels}), seconds)


STEPS: Mapping[TrainerName, Callable[[float], float]] = {"torch": _with_torch, "onnx": _with_onnxruntime}
"""Steps of the reference block per second, measured for that many seconds."""


def reference_batch() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    inputs = np.linspace(0, 1, BATCH * CHANNELS * SIDE * SIDE, dtype=np.float32)
    return inputs.reshape(BATCH, CHANNELS, SIDE, SIDE), np.arange(BATCH) % CLASSES


def _rate(work: Callable[[], object], seconds: float) -> float:
    """Calls per second, after a first call that makes what later ones reuse."""
    work()
    begun, count = time.perf_counter(), 0
    while True:
        work()
        count += 1
        taken = time.perf_counter() - begun
        if taken >= seconds:
            return count / taken
