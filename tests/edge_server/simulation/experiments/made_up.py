"""Made-up runs: a simulate function that writes a history instead of training."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.config.config import Config
from edge_server.coordinator.launch import stopped_by_signals
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments.cells import CellRun, Plan, RunSelection
from edge_server.simulation.experiments.compare import checked_plan, named_experiment
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_folder import RunFolder


def plan(*overrides: str, seeds: tuple[int, ...] = (1, 2)) -> Plan:
    """Two recipes with each seed, two rounds on digits."""
    words = ("data.source=digits", "model.name=mlp", "num-clients=2", "rounds=2", *overrides)
    experiment = named_experiment(["fedavg", "fedprox"])
    return checked_plan(experiment, RunSelection(seeds=seeds, overrides=words))


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
        test_metrics={} if accuracy is None else {"accuracy": accuracy, "auroc": accuracy / 2},
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
        test_metrics={} if accuracy is None else {"accuracy": accuracy},
    )


def tenths(config: Config, number: int) -> float:
    """0.1 more in every round."""
    return 0.1 * number


@dataclass
class Simulated:
    """Replaces `simulate`: a round's accuracy is `accuracy(config, round)`; `calls` are (folder, resume)."""

    accuracy: Callable[[Config, int], float] = tenths
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
    """A progress display that only records the results of runs, and how many were at work."""

    results: list[str] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)

    def begin(self, number: int, count: int, run: CellRun) -> Watcher:
        return self

    def show(self, snapshot: Snapshot) -> None: ...

    def at_work(self, busy: int, *, ended: int, count: int, left_s: float | None) -> None:
        self.busy.append(busy)

    def end(self, number: int, run: CellRun, *, text: str, left_s: float | None) -> None:
        self.results.append(f"{run.folder}: {text}")


class Dies:
    """As `Simulated`, but the process dies in one run."""

    def __init__(self, in_: str) -> None:
        self.in_, self._others = in_, Simulated()

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        if out.name == self.in_:
            os._exit(9)
        return self._others(config, out=out, watcher=watcher, resume=resume)


class Raises:
    """As `Simulated`, but one run raises an error that is none of ours."""

    def __init__(self, in_: str) -> None:
        self.in_, self._others = in_, Simulated()

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        if out.name == self.in_:
            raise ZeroDivisionError("a user's own network")
        return self._others(config, out=out, watcher=watcher, resume=resume)


def trains(config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
    """Simulate, without processes for the devices."""
    # The processes of made-up runs start without torch, which takes a second.
    from edge_server.simulation.simulator import simulate
    from tests.edge_server.simulation.in_process import in_process

    with in_process():
        return simulate(config, out=out, watcher=watcher, resume=resume, export=False)


class StopsTheParent:
    """Simulates; the first run to close a round sends one signal to the parent, and all wait for its stop."""

    def __init__(self, sent: Path) -> None:
        self._sent = sent

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        # The processes of made-up runs start without torch, which takes a second.
        from edge_server.simulation.simulator import simulate

        return simulate(
            config, out=out, watcher=_AfterRoundOne(watcher, self._sent), resume=resume, export=False
        )


class _AfterRoundOne:
    def __init__(self, watcher: Watcher, sent: Path) -> None:
        self._watcher, self._sent = watcher, sent

    def show(self, snapshot: Snapshot) -> None:
        while snapshot.history and not self._watcher.stopped:  # type: ignore[attr-defined]
            with contextlib.suppress(FileExistsError):
                self._sent.touch(exist_ok=False)
                os.kill(os.getppid(), signal.SIGINT)
            self._watcher.show(snapshot)


@dataclass(frozen=True)
class Stuck:
    """A run that never ends and that no signal stops; it marks in `begun` that it has begun."""

    begun: Path

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        (self.begun / out.name).touch()
        while True:
            threading.Event().wait()


@dataclass(frozen=True)
class Waits:
    """A run that goes on until it is stopped; it marks in `begun` that it has begun."""

    begun: Path

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        folder, stopped = RunFolder.create(out, config), threading.Event()
        folder.add_round(record(1, 0.5))
        with stopped_by_signals(stopped.set):
            (self.begun / out.name).touch()
            while not stopped.is_set():
                watcher.show(Snapshot("made-up", "made-up-1", "training", 1, rounds=2, elapsed_s=1.0))
        ended = summary(outcome="interrupted")
        folder.write_summary(ended)
        return ended
