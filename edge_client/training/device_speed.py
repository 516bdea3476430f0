"""Measures in about three seconds per trainer how fast the board trains and moves memory.

Training is measured on a reference block: a 3x3 convolution over 32 channels of 16x16, batch normalisation
and a layer of ten outputs, in batches of 32; gradients of the inputs are computed too. onnxruntime runs the
block's step graph in `reference_step.onnx`. An accelerator trains it from its own memory.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge_client.system.process_memory import resident_bytes
from schemas.values import TRAINING_PASSES, AcceleratorKind, MeasuredSpeed, TrainerName

if TYPE_CHECKING:
    from torch import Tensor, nn

SECONDS = 3.0
TRAINING_SHARE = 0.8  # share of the time for training; the rest is for memory
CHANNELS, SIDE, CLASSES, BATCH = 32, 16, 10, 32
BLOCK_MACS = CHANNELS * CHANNELS * 9 * SIDE * SIDE + CHANNELS * SIDE * SIDE * CLASSES
COPIED_BYTES = 32 * 1024 * 1024  # larger than any cache of a board
REFERENCE_STEP = Path(__file__).with_name("reference_step.onnx")
"""The step graph of `tests.edge_client.training.reference_block`, whose first operation scales the inputs."""


def measure(
    trainer: TrainerName | None, seconds: float = SECONDS, *, accelerator: AcceleratorKind | None = None
) -> MeasuredSpeed:
    """Measure for about this many seconds, with the trainer's default number of threads.

    Without a trainer only memory is measured. Measure onnxruntime before torch, which stays in memory, and
    torch on the processor before an `accelerator`.
    """
    if accelerator is None:
        steps = None if trainer is None else STEPS[trainer](seconds * TRAINING_SHARE)
    else:
        steps = _with_torch(seconds * TRAINING_SHARE, accelerator)
    resident = None if steps is None else resident_bytes()
    copy = _copy_on_board() if accelerator is None else _copy_on(accelerator)
    copies = rate(copy, seconds * (1 - TRAINING_SHARE))
    return MeasuredSpeed(
        trainer=trainer or "torch",
        device=accelerator or "cpu",
        training_macs_per_s=None if steps is None else steps * BATCH * TRAINING_PASSES * BLOCK_MACS,
        # Each copy reads and writes.
        memory_bytes_per_s=copies * 2 * COPIED_BYTES,
        resident_bytes=resident,
    )


def _copy_on_board() -> Callable[[], object]:
    source = np.zeros(COPIED_BYTES, np.uint8)
    target = np.ones_like(source)
    return lambda: np.copyto(target, source)


def _copy_on(accelerator: AcceleratorKind) -> Callable[[], object]:
    import torch

    source = torch.zeros(COPIED_BYTES, dtype=torch.uint8, device=accelerator)
    target = torch.ones_like(source)
    # Reading a number waits for the copy.
    return lambda: target.copy_(source)[0].item()


def _with_torch(seconds: float, device: str = "cpu") -> float:
    from edge_client.training.memory_format import channels_innermost

    block, inputs, step = torch_block(device)
    with channels_innermost(block, inputs):
        return rate(step, seconds)


def torch_block(device: str) -> "tuple[nn.Module, Tensor, Callable[[], float]]":
    """The block, equal on all devices, its inputs, and a step of it, which returns the loss."""
    import torch
    from torch import nn

    from edge_client.models.attributes import seed_generators

    with seed_generators(0):
        block = nn.Sequential(
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(CHANNELS * SIDE * SIDE, CLASSES),
        ).to(device)
    inputs, labels = (torch.from_numpy(array).to(device) for array in reference_batch())

    def step() -> float:
        block.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(block(inputs.requires_grad_()), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.item()

    return block, inputs, step


def _with_onnxruntime(seconds: float) -> float:
    from edge_client.training.step_graphs import names
    from edge_client.training.step_graphs.running.arena import StepSession
    from edge_client.training.step_graphs.running.graph_file import read_step_graph

    graph = read_step_graph(REFERENCE_STEP)
    session = StepSession(
        graph.data, {name: np.full(graph.inputs[name], 0.01, np.float32) for name in graph.arrays}
    )
    inputs, labels = reference_batch()
    return rate(lambda: session.run({names.INPUTS: inputs, names.LABELS: labels}), seconds)


STEPS: Mapping[TrainerName, Callable[[float], float]] = {"torch": _with_torch, "onnx": _with_onnxruntime}
"""Steps of the reference block per second, measured for that many seconds."""


def reference_batch() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    inputs = np.linspace(0, 1, BATCH * CHANNELS * SIDE * SIDE, dtype=np.float32)
    return inputs.reshape(BATCH, CHANNELS, SIDE, SIDE), np.arange(BATCH) % CLASSES


def rate(work: Callable[[], object], seconds: float) -> float:
    """Calls per second, after a first call that makes what later ones reuse."""
    work()
    begun, count = time.perf_counter(), 0
    while True:
        work()
        count += 1
        taken = time.perf_counter() - begun
        if taken >= seconds:
            return count / taken
