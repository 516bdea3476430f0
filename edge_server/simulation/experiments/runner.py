"""Run every cell and seed of a plan, each into a run folder of its own; what is finished is not run again."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.observability.snapshot import Watcher
from edge_server.simulation.experiments.cells import Plan, Run
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import RunFiles, read_run_files
from schemas.errors import ConfigError, EdgeError

FINISHED, INTERRUPTED = "finished", "interrupted"


class Simulate(Protocol):
    """What runs one federation in memory, `edge_server.simulation.simulator.simulate` or a test's."""

    def __call__(self, config: Config, *, out: Path, watcher: Watcher, resume: bool = False) -> Summary:
        """Run it to its end and leave its run folder at `out`."""
        ...


class Progress(Protocol):
    """Displays the progress of the runs."""

    def begin(self, number: int, count: int, run: Run) -> Watcher:
        """A run begins; the answer watches it."""
        ...

    def end(self, number: int, run: Run, *, text: str, left_s: float | None) -> None:
        """A run has ended as `text` says; `left_s` seconds are guessed to be left."""
        ...


@dataclass(frozen=True)
class Done:
    """One run and what it left; `failure` says why there is nothing to measure."""

    run: Run
    history: tuple[RoundRecord, ...] = ()
    summary: Summary | None = None
    failure: str = ""


@dataclass(frozen=True)
class Outcome:
    """All runs that have ended, in the plan's order; `interrupted` when the user stopped the rest."""

    done: tuple[Done, ...]
    interrupted: bool = False


def run_all(
    plan: Plan,
    out: Path,
    *,
    simulate: Simulate,
    progress: Progress,
    clock: Callable[[], float] = time.monotonic,
) -> Outcome:
    """Run the missing runs and resume interrupted ones; a failed run is reported and the others continue.

    Raises `ConfigError` before anything runs when `out` holds runs of other settings.
    """
    for run in plan.runs:
        _check_settings(run, out)
    left = {run.folder for run in plan.runs if _kept(run, out) is None}
    done: list[Done] = []
    spent: list[float] = []
    for number, run in enumerate(plan.runs, start=1):
        began = clock()
        watcher = progress.begin(number, len(plan.runs), run)
        kept = _kept(run, out)
        try:
            one = kept or _run(run, out, simulate, watcher)
        except KeyboardInterrupt:
            return Outcome(tuple(done), interrupted=True)
        if one.summary is not None and one.summary.outcome == INTERRUPTED:
            return Outcome(tuple(done), interrupted=True)
        done.append(one)
        if kept is None:
            spent.append(clock() - began)
            left.discard(run.folder)
        guess = len(left) * sum(spent) / len(spent) if spent else None
        progress.end(number, run, text=_text(one, kept is not None), left_s=guess)
    return Outcome(tuple(done))


def run_path(run: Run, out: Path) -> Path:
    """Where a run's folder is."""
    return out / "runs" / run.folder


def _run(run: Run, out: Path, simulate: Simulate, watcher: Watcher) -> Done:
    path = run_path(run, out)
    write_synced(_settings_path(run, out), run.cell.config(run.seed).to_toml().encode())
    resume = (path / "history.jsonl").exists()
    try:
        simulate(run.cell.config(run.seed), out=path, watcher=watcher, resume=resume)
        return _read(run, path)
    except EdgeError as error:
        return Done(run, failure=str(error))


def _read(run: Run, path: Path) -> Done:
    files: RunFiles = read_run_files(path)
    summary = files.summary
    failure = "" if summary.outcome in (FINISHED, INTERRUPTED) else f"{summary.outcome}: {summary.detail}"
    return Done(run, files.history, summary, failure)


def _kept(run: Run, out: Path) -> Done | None:
    """The run as an earlier call left it, if it had finished."""
    path = run_path(run, out)
    if not (path / "summary.json").exists():
        return None
    done = _read(run, path)
    return done if done.summary is not None and done.summary.outcome == FINISHED else None


def _check_settings(run: Run, out: Path) -> None:
    """A folder keeps the settings that it was made with; how many workers simulate does not matter."""
    path = _settings_path(run, out)
    if path.exists() and _without_engine(path.read_text()) != _without_engine(
        run.cell.config(run.seed).to_toml()
    ):
        raise ConfigError(
            f"{run_path(run, out)} was run with other settings: name another folder with --out, or remove it"
        )


def _settings_path(run: Run, out: Path) -> Path:
    return out / "runs" / f"{run.folder}.toml"


def _without_engine(text: str) -> str:
    engine = ("workers", "device", "engine")
    return "\n".join(line for line in text.splitlines() if line.partition(" = ")[0] not in engine)


def _text(done: Done, kept: bool) -> str:
    if done.failure or done.summary is None:
        return f"failed: {done.failure}"
    accuracy = done.summary.test_accuracy
    shown = "not tested" if accuracy is None else f"{accuracy:.2%}"
    return f"{shown}, was there" if kept else f"{shown} in {done.summary.duration_s:.0f} s"
