"""Runs of an experiment in processes of their own, several at once.

A small run is dominated by its serial parts, so runs side by side use the cores of a machine better than the
workers of one run. The results are the same.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from edge_client.system.malloc import keep_freed_memory
from edge_server.coordinator.launch import stopped_by_signals
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.experiments.cells import CellRun
from edge_server.simulation.experiments.one_run import EndedRun, Simulate, do_run, read_run, run_path

DIED = "its process has died: out of memory? use fewer with --parallel N"


@dataclass(eq=False)
class _Worker:
    """A process, the connection to it, and the run that it is at."""

    process: Any
    connection: Connection
    run: CellRun | None = None


def run_in_processes(
    runs: Sequence[CellRun], out: Path, simulate: Simulate, count: int
) -> Iterator[EndedRun]:
    """The runs as they end, `count` at once; a process that dies fails its run alone.

    The first SIGINT or SIGTERM stops all of them after their current round; those that had not begun are left
    out.
    """
    context = multiprocessing.get_context("spawn")
    stop, left = context.Event(), list(reversed(runs))

    def begin() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, simulate, out, stop))
        process.start()
        theirs.close()
        return _Worker(process, ours)

    workers: list[_Worker] = []
    try:
        with stopped_by_signals(stop.set):
            while True:
                busy = [worker for worker in workers if worker.run is not None]
                idle = [worker for worker in workers if worker.run is None]
                while left and not stop.is_set() and len(busy) < count:
                    worker = idle.pop() if idle else begin()
                    if worker not in workers:
                        workers.append(worker)
                    worker.run = left.pop()
                    worker.connection.send(worker.run)
                    busy.append(worker)
                if not busy:
                    return
                for connection in wait([worker.connection for worker in busy]):
                    worker = next(worker for worker in busy if worker.connection is connection)
                    yield _ended(worker, out)
                    if not worker.process.is_alive():
                        workers.remove(worker)
    finally:
        stop.set()
        for worker in workers:
            worker.connection.close()
        for worker in workers:
            worker.process.join()


def _ended(worker: _Worker, out: Path) -> EndedRun:
    """The run that the worker has ended, or died in."""
    run, worker.run = worker.run, None
    assert run is not None
    try:
        failure = worker.connection.recv()
    except (EOFError, OSError):
        worker.process.join()
        failure = DIED
    return EndedRun(run, failure=failure) if failure else read_run(run, run_path(run, out))


class _Stopping:
    """A watcher that stops its run, as Ctrl-C would, once the parent says so."""

    def __init__(self, stop: Any) -> None:
        self._stop, self._stopped = stop, False

    def show(self, snapshot: Snapshot) -> None:
        """Raise the signal once."""
        if self._stop.is_set() and not self._stopped:
            self._stopped = True
            signal.raise_signal(signal.SIGINT)


def _work(connection: Connection, simulate: Simulate, out: Path, stop: Any) -> None:
    """Run what the parent sends, until it closes the connection; answer each with its failure, if any."""
    for number in (signal.SIGINT, signal.SIGTERM):
        # Only the parent handles them; a run has handlers of its own.
        signal.signal(number, signal.SIG_IGN)
    os.setpgrp()
    keep_freed_memory()
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    with contextlib.suppress(EOFError, OSError):
        while True:
            run = connection.recv()
            connection.send(do_run(run, out, simulate, _Stopping(stop)).failure)


def _end_with_parent() -> None:
    """Exit when the parent dies, since a killed parent cannot end its workers."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
