"""Made-up runs: a simulate function that writes a history instead of training."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.config.config import Config
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments.cells import CellRun
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_folder import RunFolder


def record(number: int, accuracy: float | None, *, selected: int = 2, uplink: int = 800) -> RoundRecord:
    names = tuple(f"device-{index}" for index in range(selected))
    return RoundRecord(
        round=number,
        fraction=0.5,
        local_epochs=1,
        selected=names,
        completed=names,
        uplink_bytes=uplink,
        downlink_bytes=1000,
        duration_s=1.0,
        virtual_time_s=float(number),
        test_accuracy=accuracy,
    )


def summary(*, outcome: str = "finished", rounds: int = 1, accuracy: float | None = 0.5) -> Summary:
    return Summary(
        federation="made-up",
        run="made-up-1",
        recipe=None,
        outcome=outcome,
        rounds=rounds,
        duration_s=1.0,
        model="mlp",
        parameters=100,
        test_accuracy=accuracy,
    )


@dataclass
class Simulated:
    """Replaces `simulate`: a round's accuracy is `accuracy(config, round)`; `calls` are (folder, resume)."""

    accuracy: Callable[[Config, int], float] = lambda config, number: 0.1 * number
    stop_in: str = ""
    fail_in: str = ""
    calls: list[tuple[str, bool]] = field(default_factory=list)

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        self.calls.append((out.name, resume))
        folder = RunFolder(out) if resume else RunFolder.create(out, config)
        (out / "history.jsonl").write_text("")
        rounds = config.federation.rounds
        outcome = "interrupted" if out.name == self.stop_in else "finished"
        if out.name == self.fail_in:
            outcome = "failed"
        for number in range(1, (1 if outcome == "interrupted" else rounds) + 1):
            folder.add_round(record(number, self.accuracy(config, number)))
        ended = summary(outcome=outcome, rounds=rounds, accuracy=self.accuracy(config, rounds))
        folder.write_summary(ended)
        return ended


@dataclass
class Quiet:
    """A progress display that only records the results of runs."""

    results: list[str] = field(default_factory=list)

    def begin(self, number: int, count: int, run: CellRun) -> Watcher:
        return self

    def show(self, snapshot: Snapshot) -> None: ...

    def end(self, number: int, run: CellRun, *, text: str, left_s: float | None) -> None:
        self.results.append(f"{run.folder}: {text}")
