"""Measures in about three seconds how fast the board trains and moves memory.

Training is measured on a reference block: a 3x3 convolution over 32 channels of 16x16, batch normalisation
and a layer of ten outputs, in batches of 32. Without torch only memory is measured.
"""

import time
from collections.abc import Callable

import numpy as np

from edge_client.system.process_memory import resident_bytes
from schemas.values import TRAINING_PASSES, MeasuredSpeed

SECONDS = 3.0
TRAINING_SHARE = 0.8
"""Share of the time for training; the rest is for memory."""
CHANNELS, SIDE, CLASSES, BATCH = 32, 16, 10, 32
BLOCK_MACS = CHANNELS * CHANNELS * 9 * SIDE * SIDE + CHANNELS * SIDE * SIDE * CLASSES
COPIED_BYTES = 32 * 1024 * 1024
"""Larger than any cache of a board."""


def measure(seconds: float = SECONDS) -> MeasuredSpeed:
    """Measure for about this many seconds, with torch's default number of threads."""
    steps = _training(seconds * TRAINING_SHARE)
    resident = None if steps is None else resident_bytes()
    source = np.zeros(COPIED_BYTES, np.uint8)
    target = np.ones_like(source)
    copies = _rate(lambda: np.copyto(target, source), seconds * (1 - TRAINING_SHARE))
    return MeasuredSpeed(
        training_macs_per_s=None if steps is None else steps * BATCH * TRAINING_PASSES * BLOCK_MACS,
        # Each copy reads and writes.
        memory_bytes_per_s=copies * 2 * COPIED_BYTES,
        resident_bytes=resident,
    )


def _training(seconds: float) -> float | None:
    """Steps of the reference block per second; None without torch."""
    try:
        import torch
        from torch import nn
    except ImportError:
        return None
    from edge_client.training.memory_format import channels_innermost

    block = nn.Sequential(
        nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
        nn.BatchNorm2d(CHANNELS),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(CHANNELS * SIDE * SIDE, CLASSES),
    )
    inputs = torch.linspace(0, 1, BATCH * CHANNELS * SIDE * SIDE).reshape(BATCH, CHANNELS, SIDE, SIDE)
    labels = torch.arange(BATCH) % CLASSES

    def step() -> None:
        block.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(block(inputs.requires_grad_()), labels).backward()  # type: ignore[no-untyped-call]

    with channels_innermost(block):
        return _rate(step, seconds)


def _rate(work: Callable[[], None], seconds: float) -> float:
    """Calls per second, after a first call that makes what later ones reuse."""
    work()
    begun, count = time.perf_counter(), 0
    while True:
        work()
        count += 1
        taken = time.perf_counter() - begun
        if taken >= seconds:
            return count / taken
