"""The engine of one machine: worker processes, one torch thread each.

Jobs and outcomes are pickled over pipes between this process and its children, which no other user can
reach. They contain a device's task and answer as JSON, never objects that a device made.
"""

import logging
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future, ProcessPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_byte
from functools import cache
from multiprocessing.process import BaseProcess
from typing import Any

from edge_client.system.logging.setup import begin_inherited_log
from edge_client.system.process_memory import keep_freed_memory
from edge_client.training.loop import single_thread
from edge_server.coordinator import worker_processes
from edge_server.simulation import client_work

JobFuture = Future[tuple[client_work.Outcome, ...]]

PRELOADED = [
    "edge_client.agent.task_runner",
    "edge_client.training.torch_trainer",
    "edge_server.simulation.client_work",
    "torch._inductor",
]  # Modules that the fork server imports for all workers; recording a training step imports the last one


class LocalEngine(client_work.CohortWorkers[JobFuture]):
    """A pool of worker processes, each ready after its first job."""

    def __init__(self, setup: client_work.WorkSetup, *, workers: int) -> None:
        context = worker_processes.worker_context(PRELOADED)
        # Without a lock: an interrupt in the moment of taking it left it taken, and workers waited forever.
        self._over: Any = context.Value("b", 0, lock=False)
        self.pool = ProcessPoolExecutor(
            workers, mp_context=context, initializer=_begin, initargs=(setup, self._over)
        )
        # A broken pool forgets its processes, which can tell how they have ended.
        self.processes: dict[int, BaseProcess] = {}

    def submit(self, job: client_work.ClientJob) -> JobFuture:
        return self.submit_together((job,))

    def submit_together(self, jobs: Sequence[client_work.ClientJob]) -> JobFuture:
        try:
            handle = self.pool.submit(_work, tuple(jobs))
            self.processes.update(self.pool._processes)
            return handle
        except BrokenProcessPool as error:
            raise self._broken() from error

    def result(self, handle: JobFuture, *, timeout_s: float) -> client_work.Outcome | None:
        outcomes = self.results(handle, timeout_s=timeout_s)
        return None if outcomes is None else outcomes[0]

    def results(self, handle: JobFuture, *, timeout_s: float) -> tuple[client_work.Outcome, ...] | None:
        try:
            return handle.result(timeout=timeout_s)
        except NotYet:
            return None
        except BrokenProcessPool as error:
            raise self._broken() from error
        except CancelledError as error:
            raise client_work.EngineError("the outcome of a cancelled job was requested") from error

    def cancel(self, handle: JobFuture) -> None:
        """Drop a job that has not begun; the outcome of a running one is ignored."""
        handle.cancel()

    def stop(self) -> None:
        """Nothing: jobs that run hold nobody up."""

    def close(self) -> None:
        """End the processes; running jobs stop at their next batch."""
        self._over.value = 1
        self.pool.shutdown(wait=True, cancel_futures=True)

    def _broken(self) -> client_work.EngineError:
        """The error that says how the process ended that has broken the pool; the pool ended the others."""
        self.pool.shutdown(wait=True)
        codes = [process.exitcode for process in self.processes.values()]
        code = next((code for code in codes if code not in (None, -signal.SIGTERM)), -signal.SIGTERM)
        remedy = ": use fewer with workers=N" if code == -signal.SIGKILL else ""
        return client_work.EngineError(f"a worker process {worker_processes.ending(code)}{remedy}")


def warm_up() -> None:
    """Start the fork server in the background while the caller prepares data and model."""
    worker_processes.start_fork_server(worker_processes.worker_context(PRELOADED))


_setup: client_work.WorkSetup
_run_over: c_byte


def _begin(setup: client_work.WorkSetup, over: c_byte) -> None:
    """Set up a worker process, which ignores Ctrl-C: only the parent handles it."""
    global _setup, _run_over
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    worker_processes.end_with_parent()
    begin_inherited_log(logging.WARNING)
    _setup, _run_over = setup, over


@cache
def _bench() -> client_work.ClientWork:
    """Made for the first job, so that the job's future raises what this raises."""
    return client_work.ClientWork(_setup)


def _work(jobs: tuple[client_work.ClientJob, ...]) -> tuple[client_work.Outcome, ...]:
    return do_jobs(_bench(), jobs, lambda: bool(_run_over.value))


def do_jobs(
    bench: client_work.ClientWork, jobs: Sequence[client_work.ClientJob], should_stop: Callable[[], bool]
) -> tuple[client_work.Outcome, ...]:
    """Do a job, or several in one go."""
    if len(jobs) == 1:
        return (bench.do(jobs[0], should_stop),)
    return bench.do_together(jobs, should_stop)


Jobs = Sequence[client_work.ClientJob]


class OwnProcessEngine(client_work.CohortWorkers[Jobs]):
    """Does one job at a time, or one cohort, with torch in one thread, as a worker process would."""

    def __init__(self, setup: client_work.WorkSetup) -> None:
        self._stopping = False
        with single_thread():
            self._bench = client_work.ClientWork(setup)

    def submit(self, job: client_work.ClientJob) -> Jobs:
        return (job,)

    def submit_together(self, jobs: Jobs) -> Jobs:
        """The jobs are their own handle."""
        return jobs

    def result(self, handle: Jobs, *, timeout_s: float) -> client_work.Outcome | None:
        outcomes = self.results(handle, timeout_s=timeout_s)
        return None if outcomes is None else outcomes[0]

    def results(self, handle: Jobs, *, timeout_s: float) -> tuple[client_work.Outcome, ...] | None:
        """Do the jobs, however long they take; None if `stop` was called meanwhile."""
        with single_thread():
            outcomes = do_jobs(self._bench, handle, lambda: self._stopping)
        return None if self._stopping else outcomes

    def cancel(self, handle: Jobs) -> None:
        """Nothing: only a job whose outcome is asked for is done."""

    def stop(self) -> None:
        """End the job at its next batch."""
        self._stopping = True

    def close(self) -> None:
        """Nothing is left to end."""
