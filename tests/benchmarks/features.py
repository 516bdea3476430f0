"""A round of training the output layer, with features that are kept, without, and of the whole network.

The same simulation in three versions, on one thread; processor time of the devices' work and of all the
round, in the rounds after the first one.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.client_work import ClientWork
from edge_server.simulation.simulator import simulate
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options

SIDE, EXAMPLES, CLASSES = 96, 400, 10
VERSIONS = {
    "kept": ("training.train=head",),
    "not kept": ("training.train=head", "training.feature-cache-mb=0"),
    "whole": (),
}
WORDS = (
    "data.source=python:tests.benchmarks.features:pictures",
    "model.name=mobilenet-v2",
    "test-samples=20",
    "clients.fraction=1.0",
    "batch-size=32",
    "tiers.ratios=[0.0]",
    "workers=1",
)


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Noise in the size at which a pretrained network for boards sees pictures."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (EXAMPLES, 3, SIDE, SIDE), dtype=np.uint8)
    return images, np.arange(EXAMPLES) % CLASSES


@dataclass
class Clock:
    """The processor time of each round, and of the devices' work in it."""

    rounds: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    _devices: float = 0.0

    def show(self, snapshot: Snapshot) -> None:
        """Note the time when a round has been closed."""
        if len(snapshot.history) > len(self.work):
            self.rounds.append(time.process_time())
            self.work.append(self._devices)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note what the devices' work takes inside."""
        own: Callable[..., Any] = ClientWork.do

        def do(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return own(*arguments)
            finally:
                self._devices += time.process_time() - began

        with patch.object(ClientWork, "do", do):
            yield

    def later(self, times: list[float]) -> float:
        """The mean of the rounds after the first one."""
        return (times[-1] - times[0]) / (len(times) - 1)


def figures(options: Options) -> list[Figure]:
    """The two other versions over the one that keeps features."""
    clients, examples, rounds = (2, 16, 2) if options.quick else (10, 32, 4)
    sizes = (f"num-clients={clients}", f"samples-per-client={examples}", f"rounds={rounds}")
    clocks = {name: _run((*WORDS, *sizes, *words)) for name, words in VERSIONS.items()}
    kept = clocks["kept"]
    detail = f"mobilenet-v2, {SIDE} pixels, {clients} devices with {examples} examples, 3 epochs"
    result = []
    for name in ("not kept", "whole"):
        for what in ("work", "rounds"):
            ours, other = (clock.later(getattr(clock, what)) for clock in (kept, clocks[name]))
            label = "devices' work" if what == "work" else "all of a round"
            raw = {"seconds kept": ours, f"seconds {name}": other}
            result.append(
                Figure("features", f"{label}: {name} over kept", "x", (other / ours,), detail=detail, raw=raw)
            )
    return result


def _run(words: tuple[str, ...]) -> Clock:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, clock.watching():
        simulate(load_config("fedavg", list(words)), out=Path(folder) / "run", watcher=clock, export=False)
    return clock
