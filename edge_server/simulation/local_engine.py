"""The engine of one machine: worker processes, one torch thread each.

Jobs and outcomes are pickled over pipes between this process and its children, which no other user can
reach. They contain a device's task and answer as JSON, never objects that a device made.
"""

import logging
import signal
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.sharedctypes import Synchronized
from typing import Any

from edge_client.system.logging.setup import begin_inherited_log
from edge_client.system.malloc import keep_freed_memory
from edge_server.coordinator.worker_processes import end_with_parent, start_fork_server, worker_context
from edge_server.simulation.client_work import ClientWork, WorkSetup
from edge_server.simulation.engine import ClientJob, Engine, EngineError, Outcome

JobFuture = Future[Outcome]

PRELOADED = [
    "edge_client.agent.task_runner",
    "edge_client.training.torch_trainer",
    "edge_server.simulation.client_work",
    "torch._inductor",
]
"""Modules that the fork server imports for all workers; recording a training step imports the last one."""


class LocalEngine(Engine[JobFuture]):
    """A pool of worker processes, each ready after its first job."""

    def __init__(self, setup: WorkSetup, *, workers: int) -> None:
        context = worker_context(PRELOADED)
        self._over: Any = context.Value("b", 0)
        self._pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(setup, self._over)
        )

    def submit(self, job: ClientJob) -> JobFuture:
        """Put a job in the pool's queue."""
        try:
            return self._pool.submit(_work, job)
        except BrokenProcessPool as error:
            raise _broken() from error

    def result(self, handle: JobFuture, *, timeout_s: float) -> Outcome | None:
        """Wait for a job; `EngineError` if a process died."""
        try:
            return handle.result(timeout=timeout_s)
        except NotYet:
            return None
        except BrokenProcessPool as error:
            raise _broken() from error
        except CancelledError as error:
            raise EngineError("the outcome of a cancelled job was requested") from error

    def cancel(self, handle: JobFuture) -> None:
        """Drop a job that has not begun; the outcome of a running one is ignored."""
        handle.cancel()

    def close(self) -> None:
        """End the processes; running jobs stop at their next batch."""
        self._over.value = 1
        self._pool.shutdown(wait=True, cancel_futures=True)


def warm_up() -> None:
    """Start the fork server in the background while the caller prepares data and model."""
    start_fork_server(worker_context(PRELOADED))


def _broken() -> EngineError:
    return EngineError("a worker process has died: out of memory? use fewer with workers=N")


_bench: ClientWork
_run_over: "Synchronized[int]"


def _begin(setup: WorkSetup, over: "Synchronized[int]") -> None:
    """Set up a worker process, which ignores Ctrl-C: only the parent handles it."""
    global _bench, _run_over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    end_with_parent()
    begin_inherited_log(logging.WARNING)
    _bench, _run_over = ClientWork(setup), over


def _work(job: ClientJob) -> Outcome:
    return _bench.do(job, lambda: bool(_run_over.value))
