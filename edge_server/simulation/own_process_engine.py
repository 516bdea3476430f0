"""The engine of one worker: jobs run in the process itself, each where its outcome is asked for."""

from edge_client.training.loop import single_thread
from edge_server.simulation.client_work import ClientWork, WorkSetup
from edge_server.simulation.engine import ClientJob, Engine, Outcome


class OwnProcessEngine(Engine[ClientJob]):
    """Does one job at a time, with torch in one thread, as a worker process would."""

    def __init__(self, setup: WorkSetup) -> None:
        self._stopping = False
        with single_thread():
            self._bench = ClientWork(setup)

    def submit(self, job: ClientJob) -> ClientJob:
        """The job is its own handle."""
        return job

    def result(self, handle: ClientJob, *, timeout_s: float) -> Outcome | None:
        """Do the job, however long it takes; None if `stop` was called meanwhile."""
        with single_thread():
            outcome = self._bench.do(handle, lambda: self._stopping)
        return None if self._stopping else outcome

    def cancel(self, handle: ClientJob) -> None:
        """Nothing: only a job whose outcome is asked for is done."""

    def stop(self) -> None:
        """End the job at its next batch."""
        self._stopping = True

    def close(self) -> None:
        """Nothing is left to end."""
