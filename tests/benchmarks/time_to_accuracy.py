"""Time to an accuracy beside Flower's simulation engine: `python -m tests.benchmarks time-to-accuracy`.

`mlp` on MNIST: 100 clients of 600 images, iid, a tenth of them per round, 5 local epochs of batch 10. Both
servers test the model on the 10,000 test images after every round. The accuracy to reach is 95 % of the lower
of the two final ones. Seconds count from the start of the engine, its processes included, until the test that
reaches it has ended; both sides take turns.
"""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from edge_client.data.sources import load_source
from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.simulator import simulate
from tests.benchmarks.figure import Figure
from tests.benchmarks.flower.environment import NotInstalled, default_folder, installed
from tests.benchmarks.flower_simulation.engine import FlowerFailed, accuracies
from tests.benchmarks.options import Options

AREA = "time to accuracy"
NAME = "time to 95 % of the final accuracy over Flower's"
TARGET, SHARE = 0.5, 0.95
WORKERS = 2

Tested = Sequence[tuple[float, float]]
"""Seconds and accuracy of each test, in order."""


class Tests:
    """A watcher that notes when each round's accuracy is known."""

    __test__ = False

    def __init__(self) -> None:
        self._began, self.found = time.perf_counter(), list[tuple[float, float]]()

    def show(self, snapshot: Snapshot) -> None:
        """Note the time of new lines of history."""
        for record in snapshot.history[len(self.found) :]:
            assert record.test_accuracy is not None
            self.found.append((time.perf_counter() - self._began, record.test_accuracy))


def figures(options: Options) -> list[Figure]:
    """Ours over Flower's, in turns."""
    if options.quick:
        return [_missing("left out of a quick run: starting Ray alone takes longer")]
    try:
        environment = installed(default_folder())
        config, turns = _settings(options.data_root, rounds=10), 2
        test = load_source("MNIST", data_root=options.data_root, split="test")
        python = Path(environment.program("python"))
        pairs = [
            (_ours(config, options.folder), accuracies(config, python, test, workers=WORKERS))
            for _ in range(turns)
        ]
    except (NotInstalled, FlowerFailed, OSError) as error:
        return [_missing(f"{type(error).__name__}: {error}")]
    return [_ratio(pairs, f"flwr {environment.version('flwr')}, ray {environment.version('ray')}")]


def _missing(why: str) -> Figure:
    return Figure(AREA, NAME, "x", (), TARGET, reason=why)


def _ratio(pairs: Sequence[tuple[Tested, Tested]], versions: str) -> Figure:
    reached = [_reached(ours, its) for ours, its in pairs]
    ours, its = pairs[-1]
    mine, other = reached[-1]
    return Figure(
        AREA,
        NAME,
        "x",
        tuple(one / two for one, two in reached),
        TARGET,
        detail=f"{versions}; last pair {mine:.1f} s over {other:.1f} s to {100 * _wanted(ours, its):.1f} %, "
        f"final accuracies {100 * ours[-1][1]:.1f} and {100 * its[-1][1]:.1f} %, tested every round",
        reason="most of the time is training on both sides",
        raw={"ours": [list(pair[0]) for pair in pairs], "flower": [list(pair[1]) for pair in pairs]},
    )


def _wanted(ours: Tested, its: Tested) -> float:
    return SHARE * min(ours[-1][1], its[-1][1])


def _reached(ours: Tested, its: Tested) -> tuple[float, float]:
    """The seconds after which each side has the wanted accuracy for the first time."""
    wanted = _wanted(ours, its)
    mine, other = (next(s for s, accuracy in tested if accuracy >= wanted) for tested in (ours, its))
    return mine, other


def _ours(config: Config, folder: Path | None) -> Tested:
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=folder) as name:
        tests = Tests()
        summary = simulate(config, out=Path(name) / "run", watcher=tests, export=False)
    if summary.outcome != "finished":
        raise RuntimeError(f"the simulation has {summary.outcome}: {summary.detail}")
    return tests.found


def _settings(data_root: Path, *, rounds: int) -> Config:
    words = [
        *("data.source=MNIST", f'data.data-root="{data_root}"', "data.partition=iid", "model.name=mlp"),
        *("num-clients=100", "clients.fraction=0.1", f"rounds={rounds}", "training.optimizer=sgd"),
        *("learning-rate=0.01", "training.momentum=0.5", "local-epochs=5", "batch-size=10"),
        f"workers={WORKERS}",
    ]
    return load_config("fedavg", words)
