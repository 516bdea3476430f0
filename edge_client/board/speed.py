"""How fast the board trains and moves memory: about three seconds of work, kept for later starts.

Trained is a reference block: a convolution of 3x3 over 32 channels of 16x16, batch normalisation, and a layer
of ten outputs, in batches of 32. Without torch only memory is measured. `edge-client profile` measures; what
it finds lies in the state folder, and `edge-client run` reads it there: it never measures by itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import numpy as np
from pydantic import ValidationError

from edge_client.board.processor import Processor
from edge_client.board.reading import text
from edge_client.files import write_synced
from schemas.frozen import Frozen
from schemas.values import MeasuredSpeed, Text

SECONDS = 3.0
TRAINING_SHARE = 0.8
"""Of the time; the rest is for memory."""
CHANNELS, SIDE, CLASSES, BATCH = 32, 16, 10, 32
BLOCK_MACS = CHANNELS * CHANNELS * 9 * SIDE * SIDE + CHANNELS * SIDE * SIDE * CLASSES
PASSES = 3
"""A training step costs about three forward passes (Baydin et al. 2018, section 3.2)."""
COPIED_BYTES = 32 * 1024 * 1024
"""More than any cache of a board."""


class KeptSpeed(Frozen):
    """A measurement, and what it holds for: another processor or another torch is to be measured anew."""

    of: Text
    speed: MeasuredSpeed


def measure(seconds: float = SECONDS) -> MeasuredSpeed:
    """Measure for about so many seconds, on all threads that torch takes by itself."""
    steps = _training(seconds * TRAINING_SHARE)
    resident = _resident() if steps is not None else None
    copies = _rate(_copying(), seconds * (1 - TRAINING_SHARE))
    return MeasuredSpeed(
        training_macs_per_s=None if steps is None else steps * BATCH * PASSES * BLOCK_MACS,
        # Each copy reads and writes.
        memory_bytes_per_s=copies * 2 * COPIED_BYTES,
        resident_bytes=resident,
    )


def keep(path: Path, speed: MeasuredSpeed, processor: Processor) -> None:
    """Put a measurement down for later starts."""
    write_synced(path, KeptSpeed(of=_named(processor), speed=speed).model_dump_json().encode())


def recall(path: Path, processor: Processor) -> MeasuredSpeed | None:
    """The measurement that is kept, if there is one and it is of this processor and this torch."""
    try:
        kept = KeptSpeed.model_validate_json(text(path))
    except ValidationError:
        return None
    return kept.speed if kept.of == _named(processor) else None


def kept_at(state: Path) -> Path:
    """Where the measurement lies in a state folder."""
    return state / "speed.json"


def _named(processor: Processor) -> str:
    torch = "none"
    with contextlib.suppress(metadata.PackageNotFoundError):
        torch = metadata.version("torch")
    named = f"{processor.board or ''} {processor.model} {processor.cores} {processor.architecture} {torch}"
    return named[:500]


def _training(seconds: float) -> float | None:
    """Steps of the reference block per second; None without torch."""
    try:
        import torch
        from torch import nn
    except ImportError:
        return None
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

    return _rate(step, seconds)


def _copying() -> Callable[[], None]:
    source = np.zeros(COPIED_BYTES, np.uint8)
    target = np.ones_like(source)
    return lambda: np.copyto(target, source)


def _rate(work: Callable[[], None], seconds: float) -> float:
    """How often per second; once before the clock starts, for whatever is made at the first time."""
    work()
    begun, count = time.perf_counter(), 0
    while True:
        work()
        count += 1
        taken = time.perf_counter() - begun
        if taken >= seconds:
            return count / taken


def _resident() -> int | None:
    """Bytes that this process holds now."""
    lines = (line.split() for line in text(Path("/proc/self/status")).splitlines())
    return next((int(line[1]) * 1024 for line in lines if line[:1] == ["VmRSS:"]), None)
