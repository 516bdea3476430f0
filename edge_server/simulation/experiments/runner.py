"""Runs every cell and seed of a plan in a run folder of its own; finished runs are not repeated."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.observability.snapshot import Watcher
from edge_server.simulation.experiments.cells import CellRun, Plan
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import RunFiles, read_run_files
from schemas.errors import ConfigError, EdgeError

FINISHED, INTERRUPTED = "finished", "interrupted"


class Simulate(Protocol):
    """Simulates one federation: `edge_server.simulation.simulator.simulate`, or a test's function."""

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        """Simulate to the end, and write the run folder at `out`."""
        ...


class Progress(Protocol):
    """Displays the progress of the runs."""

    def begin(self, number: int, count: int, run: CellRun) -> Watcher:
        """Display that a run begins; returns the run's watcher."""
        ...

    def end(self, number: int, run: CellRun, *, text: str, left_s: float | None) -> None:
        """Display the end of a run with its result; `left_s` are the estimated seconds left."""
        ...


@dataclass(frozen=True)
class EndedRun:
    """One ended run with its records; `failure` is the reason why there are none."""

    run: CellRun
    history: tuple[RoundRecord, ...] = ()
    summary: Summary | None = None
    failure: str = ""


@dataclass(frozen=True)
class EndedRuns:
    """The ended runs in the plan's order; `interrupted` if the user stopped the others."""

    done: tuple[EndedRun, ...]
    interrupted: bool = False


def run_all(
    plan: Plan,
    out: Path,
    *,
    simulate: Simulate,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> EndedRuns:
    """Run the missing runs and resume interrupted ones; a failed run is reported and the others continue.

    Raises `ConfigError` before the first run if `out` contains runs with other settings.
    """
    for run in plan.runs:
        _check_settings(run, out)
    left = {run.folder for run in plan.runs if _kept(run, out) is None}
    done: list[EndedRun] = []
    spent: list[float] = []
    for number, run in enumerate(plan.runs, start=1):
        began = clock()
        watcher = progress.begin(number, len(plan.runs), run)
        kept = _kept(run, out)
        try:
            ended = kept or _run(run, out, simulate, watcher)
        except KeyboardInterrupt:
            return EndedRuns(tuple(done), interrupted=True)
        if ended.summary is not None and ended.summary.outcome == INTERRUPTED:
            return EndedRuns(tuple(done), interrupted=True)
        done.append(ended)
        if kept is None:
            spent.append(clock() - began)
            left.discard(run.folder)
        guess = len(left) * sum(spent) / len(spent) if spent else None
        progress.end(number, run, text=_text(ended, kept is not None), left_s=guess)
    return EndedRuns(tuple(done))


def run_path(run: CellRun, out: Path) -> Path:
    """The path of a run's folder."""
    return out / "runs" / run.folder


def _run(run: CellRun, out: Path, simulate: Simulate, watcher: Watcher) -> EndedRun:
    path = run_path(run, out)
    write_synced(_settings_path(run, out), run.cell.config(run.seed).to_toml().encode())
    resume = (path / "history.jsonl").exists()
    try:
        simulate(run.cell.config(run.seed), out=path, watcher=watcher, resume=resume)
        return _read(run, path)
    except EdgeError as error:
        return EndedRun(run, failure=str(error))


def _read(run: CellRun, path: Path) -> EndedRun:
    files: RunFiles = read_run_files(path)
    summary = files.summary
    failure = "" if summary.outcome in (FINISHED, INTERRUPTED) else f"{summary.outcome}: {summary.detail}"
    return EndedRun(run, files.history, summary, failure)


def _kept(run: CellRun, out: Path) -> EndedRun | None:
    """The run if an earlier call has finished it."""
    path = run_path(run, out)
    if not (path / "summary.json").exists():
        return None
    done = _read(run, path)
    return done if done.summary is not None and done.summary.outcome == FINISHED else None


def _check_settings(run: CellRun, out: Path) -> None:
    """Refuse a run folder with other settings; the engine, its device and its workers may differ."""
    path = _settings_path(run, out)
    if path.exists() and _without_engine(path.read_text()) != _without_engine(
        run.cell.config(run.seed).to_toml()
    ):
        raise ConfigError(
            f"{run_path(run, out)} has other settings: choose another folder with --out, or remove this one"
        )


def _settings_path(run: CellRun, out: Path) -> Path:
    return out / "runs" / f"{run.folder}.toml"


def _without_engine(text: str) -> str:
    engine = ("workers", "device", "engine")
    return "\n".join(line for line in text.splitlines() if line.partition(" = ")[0] not in engine)


def _text(done: EndedRun, kept: bool) -> str:
    if done.failure or done.summary is None:
        return f"failed: {done.failure}"
    accuracy = done.summary.test_accuracy
    shown = "not tested" if accuracy is None else f"{accuracy:.2%}"
    return f"{shown}, finished earlier" if kept else f"{shown} in {done.summary.duration_s:.0f} s"
