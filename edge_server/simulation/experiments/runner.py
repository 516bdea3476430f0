"""Runs every cell and seed of a plan in a run folder of its own; finished runs are not repeated."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_server.observability.snapshot import Watcher
from edge_server.simulation.experiments.cells import CellRun, Plan
from edge_server.simulation.experiments.one_run import (
    INTERRUPTED,
    EndedRun,
    Simulate,
    check_settings,
    do_run,
    kept_run,
    result_text,
)
from edge_server.simulation.experiments.parallel import run_in_processes


class Progress(Protocol):
    """Displays the progress of the runs."""

    def begin(self, number: int, count: int, run: CellRun) -> Watcher:
        """Display that a run begins; returns the run's watcher."""

    def at_work(self, busy: int, *, ended: int, count: int, left_s: float | None) -> None:
        """Display that `busy` runs of `count` are simulated at once, and that `ended` have ended.

        `left_s` are the estimated seconds left for all.
        """

    def end(self, number: int, run: CellRun, *, text: str, left_s: float | None) -> None:
        """Display the end of a run with its result; `left_s` are the estimated seconds left."""


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
    parallel: int = 1,
    clock: Callable[[], float] = time.monotonic,
) -> EndedRuns:
    """Run the missing runs and resume interrupted ones; a failed run is reported and the others continue.

    With `parallel` above 1, this number of runs is simulated at once, in processes of their own, with the
    same results. Raises `ConfigError` before the first run if `out` contains runs with other settings.
    """
    for run in plan.runs:
        check_settings(run, out)
    if parallel > 1:
        return _run_parallel(plan, out, simulate, progress, parallel, clock)
    left = {run.folder for run in plan.runs if kept_run(run, out) is None}
    done: list[EndedRun] = []
    spent: list[float] = []
    for number, run in enumerate(plan.runs, start=1):
        began = clock()
        watcher = progress.begin(number, len(plan.runs), run)
        kept = kept_run(run, out)
        try:
            ended = kept or do_run(run, out, simulate, watcher)
        except KeyboardInterrupt:
            return EndedRuns(tuple(done), interrupted=True)
        if ended.summary is not None and ended.summary.outcome == INTERRUPTED:
            return EndedRuns(tuple(done), interrupted=True)
        done.append(ended)
        if kept is None:
            spent.append(clock() - began)
            left.discard(run.folder)
        guess = len(left) * sum(spent) / len(spent) if spent else None
        progress.end(number, run, text=result_text(ended, kept is not None), left_s=guess)
    return EndedRuns(tuple(done))


def _run_parallel(
    plan: Plan, out: Path, simulate: Simulate, progress: Progress, count: int, clock: Callable[[], float]
) -> EndedRuns:
    numbers = {run.folder: number for number, run in enumerate(plan.runs, start=1)}
    done: dict[str, EndedRun] = {}
    for run in plan.runs:
        if (kept := kept_run(run, out)) is not None:
            done[run.folder] = kept
            progress.end(numbers[run.folder], run, text=result_text(kept, True), left_s=None)
    missing = [run for run in plan.runs if run.folder not in done]
    began, earlier = clock(), len(done)

    def left_s(share: float = 0.0) -> float | None:
        finished = len(done) - earlier + share
        return (len(missing) - finished) * (clock() - began) / finished if finished else None

    def at_work(busy: int, share: float) -> None:
        progress.at_work(busy, ended=len(done), count=len(plan.runs), left_s=left_s(share))

    # A second Ctrl-C ends the processes: what has ended until then is compared.
    with contextlib.suppress(KeyboardInterrupt):
        ended_runs = run_in_processes(missing, out, simulate, count, at_work=at_work)
        for ended in ended_runs:
            if ended.summary is not None and ended.summary.outcome == INTERRUPTED:
                continue
            done[ended.run.folder] = ended
            text = result_text(ended, False)
            progress.end(numbers[ended.run.folder], ended.run, text=text, left_s=left_s())
    ordered = tuple(done[run.folder] for run in plan.runs if run.folder in done)
    return EndedRuns(ordered, interrupted=len(ordered) < len(plan.runs))
