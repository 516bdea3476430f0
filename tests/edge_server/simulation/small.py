"""Simulations small enough for a test: handwritten digits and a small network."""

import json
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.client_work import Engine, WorkSetup
from edge_server.simulation.simulator import simulate
from edge_server.storage.records import Summary
from tests.edge_server.simulation.in_process import InProcess, in_process

SMALL = ("data.source=digits", "model.name=mlp", "batch-size=50", "workers=1")


class Quiet:
    """A watcher that does nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Ignore the snapshot."""


class StopAfter:
    """A watcher that presses Ctrl-C once `rounds` rounds are closed."""

    def __init__(self, rounds: int) -> None:
        self._rounds, self._pressed = rounds, False

    def show(self, snapshot: Snapshot) -> None:
        """Press Ctrl-C once."""
        if len(snapshot.history) >= self._rounds and not self._pressed:
            self._pressed = True
            signal.raise_signal(signal.SIGINT)


def run(
    out: Path,
    recipe: str,
    *overrides: str,
    watcher: Any = None,
    resume: bool = False,
    export: bool = False,
    engine: Callable[[WorkSetup], Engine[Any]] | None = InProcess,
) -> Summary:
    """Simulate a recipe with small settings and these overrides; without ONNX files by default.

    All training is done in this process; without `engine`, in worker processes.
    """
    config = load_config(recipe, [*SMALL, *overrides])
    with nullcontext() if engine is None else in_process(engine):
        return simulate(config, out=out, watcher=watcher or Quiet(), resume=resume, export=export)


def history(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]


def last_model(out: Path) -> bytes:
    return (sorted((out / "models").iterdir())[-1] / "state.safetensors").read_bytes()


def one_poisoned() -> tuple[np.ndarray, np.ndarray]:
    """A data source of four classes with 20 examples each; every network diverges on the last class."""
    labels = np.repeat(np.arange(4), 20)
    images = np.random.default_rng(0).random((80, 1, 4, 4)).astype(np.float32)
    images[labels == 3] = 1e30
    return images, labels
