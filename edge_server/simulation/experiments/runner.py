"""Runs every cell and seed of a plan in a run folder of its own; finished runs are not repeated."""

import contextlib
import ctypes
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol

from edge_client.system.logging.setup import begin_inherited_log
from edge_client.system.process_memory import keep_freed_memory
from edge_server.coordinator.launch import stopped_by_signals
from edge_server.coordinator.worker_processes import end_with_parent, ending, spawn_context
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments import cells

log = logging.getLogger(__name__)

SHOW_EVERY_S = 1.0
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run_in_processes(
    runs: Sequence[cells.CellRun],
    out: Path,
    simulate: cells.Simulate,
    count: int,
    *,
    at_work: Callable[[int, float], None] = lambda busy, share: None,
) -> Iterator[cells.EndedRun]:
    """The runs as they end, `count` at once; a process that dies fails its run alone.

    `at_work` is called with the number of running ones and the sum of their done shares (0 to 1 each), every
    second. The first SIGINT or SIGTERM
    stops all runs, which resume at their last closed round, and leaves out those that had not begun; a second
    SIGINT ends the processes.
    """
    pool, left = _Pool(out, simulate), list(reversed(runs))
    try:
        with stopped_by_signals(pool.stop):
            while True:
                while left and not pool.stopping and len(pool.busy) < count:
                    pool.begin(left.pop())
                at_work(len(pool.busy), sum(worker.share.value for worker in pool.busy))
                if not pool.busy:
                    return
                yield from pool.wait()
    except KeyboardInterrupt:
        pool.kill()
        raise
    finally:
        pool.close()


@dataclass(eq=False)
class _Worker:
    """A process, the connection to it, the run that it is at, and the share (0 to 1) that is done."""

    process: Any
    connection: Connection
    share: Any
    run: cells.CellRun | None = None


class _Pool:
    """The processes, each begun for the first run that finds no idle one, and used again."""

    def __init__(self, out: Path, simulate: cells.Simulate) -> None:
        self._out, self._simulate = out, simulate
        self._context = spawn_context()
        # Without a lock: a signal handler sets it, and a process may be killed while it reads.
        self._stop = self._context.RawValue(ctypes.c_bool, False)
        self._workers: list[_Worker] = []

    @property
    def stopping(self) -> bool:
        return bool(self._stop.value)

    @property
    def busy(self) -> list[_Worker]:
        return [worker for worker in self._workers if worker.run is not None]

    def stop(self) -> None:
        """Ask all runs to stop; may be called from a signal handler."""
        self._stop.value = True

    def begin(self, run: cells.CellRun) -> None:
        idle = (worker for worker in self._workers if worker.run is None and worker.process.is_alive())
        worker = next(idle, None) or self._new_worker()
        worker.run, worker.share.value = run, 0.0
        # A worker that has died is found by its closed connection.
        with contextlib.suppress(OSError):
            worker.connection.send(run)

    def wait(self) -> list[cells.EndedRun]:
        """Wait a second for runs that end; those that were stopped before they began are left out."""
        ready = set(wait([worker.connection for worker in self.busy], SHOW_EVERY_S))
        ended = [self._read_ended(worker) for worker in self.busy if worker.connection in ready]
        return [run for run in ended if run is not None]

    def kill(self) -> None:
        for worker in self._workers:
            worker.process.kill()

    def close(self) -> None:
        """End the idle processes, and the others as soon as their runs have stopped."""
        self.stop()
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            worker.process.join()

    def _new_worker(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        share = self._context.RawValue(ctypes.c_double, 0.0)
        arguments = (theirs, self._simulate, self._out, self._stop, share, logging.getLogger().level)
        process = self._context.Process(target=_work, args=arguments)
        # Started later, it would remove our block of the signals.
        resource_tracker.ensure_running()
        # The process inherits the block: Ctrl-C reaches every process of the terminal, even during imports.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()
        self._workers.append(_Worker(process, ours, share))
        return self._workers[-1]

    def _read_ended(self, worker: _Worker) -> cells.EndedRun | None:
        """The run that the worker has ended, or died in; None if it did not begin."""
        run, worker.run = worker.run, None
        assert run is not None
        try:
            failure = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join()
            self._workers.remove(worker)
            killed = worker.process.exitcode == -signal.SIGKILL
            remedy = ": use fewer with --parallel N" if killed else ""
            return cells.EndedRun(run, failure=f"its process {ending(worker.process.exitcode)}{remedy}")
        if failure is None:
            return None
        return (
            cells.EndedRun(run, failure=failure)
            if failure
            else cells.read_run(run, cells.run_path(run, self._out))
        )


class _Stopping:
    """A watcher that tells the parent what share is done, and stops its run as Ctrl-C would."""

    def __init__(self, stop: Any, share: Any) -> None:
        self._stop, self._share, self.stopped = stop, share, False

    def show(self, snapshot: Snapshot) -> None:
        """State the share; raise the signal once."""
        if snapshot.rounds:
            self._share.value = len(snapshot.history) / snapshot.rounds
        if self._stop.value and not self.stopped:
            self.stopped = True
            signal.raise_signal(signal.SIGINT)


def _work(
    connection: Connection, simulate: cells.Simulate, out: Path, stop: Any, share: Any, level: int
) -> None:
    """Run what the parent sends, until it closes the connection.

    The answer is the failure, "" if there is none, and None for a run that did not begin before the stop.
    """
    os.setpgrp()
    for number in SIGNALS:
        # Only the parent handles them; a run has handlers of its own. To ignore them would be inherited.
        signal.signal(number, _nothing)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    keep_freed_memory()
    begin_inherited_log(level)
    end_with_parent()
    with contextlib.suppress(EOFError, OSError):
        while True:
            run = connection.recv()
            connection.send(None if stop.value else _failure(run, out, simulate, _Stopping(stop, share)))


def _failure(run: cells.CellRun, out: Path, simulate: cells.Simulate, watcher: _Stopping) -> str:
    """Why the run failed; "" if it did not. What a user's own code raises fails this run alone."""
    try:
        return cells.do_run(run, out, simulate, watcher, alone=False).failure
    except Exception as error:
        log.exception("%s failed", run.folder)
        return f"{type(error).__name__}: {error}"


def _nothing(number: int, frame: object) -> None:
    """Handle a signal by doing nothing."""


class Progress(Protocol):
    """Displays the progress of the runs."""

    def begin(self, number: int, count: int, run: cells.CellRun) -> Watcher:
        """Display that a run begins; returns the run's watcher."""

    def at_work(self, busy: int, *, ended: int, count: int, left_s: float | None) -> None:
        """Display that `busy` runs of `count` are simulated at once, and that `ended` have ended.

        `left_s` are the estimated seconds left for all.
        """

    def end(self, number: int, run: cells.CellRun, *, text: str, left_s: float | None) -> None:
        """Display the end of a run with its result; `left_s` are the estimated seconds left."""


@dataclass(frozen=True)
class EndedRuns:
    """The ended runs in the plan's order; `interrupted` if the user stopped the others."""

    done: tuple[cells.EndedRun, ...]
    interrupted: bool = False


def run_all(
    plan: cells.Plan,
    out: Path,
    *,
    simulate: cells.Simulate,
    progress: Progress,
    parallel: int = 1,
) -> EndedRuns:
    """Run the missing runs and resume interrupted ones; a failed run is reported and the others continue.

    With `parallel` above 1, this number of runs is simulated at once, in processes of their own, with the
    same results. Raises `ConfigError` before the first run if `out` contains runs with other settings.
    """
    for run in plan.runs:
        cells.check_settings(run, out)
    if parallel > 1:
        return _run_parallel(plan, out, simulate, progress, parallel)
    left = {run.folder for run in plan.runs if cells.kept_run(run, out) is None}
    done: list[cells.EndedRun] = []
    spent: list[float] = []
    for number, run in enumerate(plan.runs, start=1):
        began = time.monotonic()
        watcher = progress.begin(number, len(plan.runs), run)
        kept = cells.kept_run(run, out)
        try:
            ended = kept or cells.do_run(run, out, simulate, watcher)
        except KeyboardInterrupt:
            return EndedRuns(tuple(done), interrupted=True)
        if ended.summary is not None and ended.summary.outcome == cells.INTERRUPTED:
            return EndedRuns(tuple(done), interrupted=True)
        done.append(ended)
        if kept is None:
            spent.append(time.monotonic() - began)
            left.discard(run.folder)
        guess = len(left) * sum(spent) / len(spent) if spent else None
        progress.end(number, run, text=cells.result_text(ended, kept is not None), left_s=guess)
    return EndedRuns(tuple(done))


def _run_parallel(
    plan: cells.Plan,
    out: Path,
    simulate: cells.Simulate,
    progress: Progress,
    count: int,
) -> EndedRuns:
    numbers = {run.folder: number for number, run in enumerate(plan.runs, start=1)}
    done: dict[str, cells.EndedRun] = {}
    for run in plan.runs:
        if (kept := cells.kept_run(run, out)) is not None:
            done[run.folder] = kept
            progress.end(numbers[run.folder], run, text=cells.result_text(kept, True), left_s=None)
    missing = [run for run in plan.runs if run.folder not in done]
    began, earlier = time.monotonic(), len(done)

    def left_s(share: float = 0.0) -> float | None:
        finished = len(done) - earlier + share
        return (len(missing) - finished) * (time.monotonic() - began) / finished if finished else None

    def at_work(busy: int, share: float) -> None:
        progress.at_work(busy, ended=len(done), count=len(plan.runs), left_s=left_s(share))

    # A second Ctrl-C ends the processes: what has ended until then is compared.
    with contextlib.suppress(KeyboardInterrupt):
        ended_runs = run_in_processes(missing, out, simulate, count, at_work=at_work)
        for ended in ended_runs:
            if ended.summary is not None and ended.summary.outcome == cells.INTERRUPTED:
                continue
            done[ended.run.folder] = ended
            text = cells.result_text(ended, False)
            progress.end(numbers[ended.run.folder], ended.run, text=text, left_s=left_s())
    ordered = tuple(done[run.folder] for run in plan.runs if run.folder in done)
    return EndedRuns(ordered, interrupted=len(ordered) < len(plan.runs))
