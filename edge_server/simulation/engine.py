"""The interface of engines, which run the devices' jobs.

An engine decides where and when a job runs. All engines give the same outcomes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from edge_client.data.drift_alarm import DriftAlarm
from edge_server.simulation.growth import Counts
from schemas.errors import EdgeError
from schemas.values import Reason, TrainerName

Handle = TypeVar("Handle")


class EngineError(EdgeError):
    """The engine failed; the simulation cannot continue."""


@dataclass(frozen=True)
class ClientJob:
    """One device's task as JSON, and what trains on it; the arrays are in the shared blob store.

    `memory` are the bytes that training finds free, by default those of this machine. Of data that grows,
    `examples` have come, and `alarm` is about them.
    """

    device: str
    task: str
    trainer: TrainerName = "torch"
    memory: int | None = None
    examples: Counts | None = None
    alarm: DriftAlarm | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a job: the device's answer as JSON, or the reason why there is none."""

    answer: str | None
    reason: Reason = Reason.TASK_FAILED
    detail: str = ""


class Engine(Protocol[Handle]):
    """Runs several jobs at once; all calls come from one thread."""

    def submit(self, job: ClientJob) -> Handle:
        """Start the job as soon as a worker is free."""

    def result(self, handle: Handle, *, timeout_s: float) -> Outcome | None:
        """The job's outcome; None after `timeout_s` seconds. Raises `EngineError`."""

    def cancel(self, handle: Handle) -> None:
        """Drop a job whose outcome is no longer needed."""

    def stop(self) -> None:
        """The run is to end: hold nobody up. May be called from a signal handler."""

    def close(self) -> None:
        """End all workers and drop unfinished jobs."""


class CohortWorkers(Engine[Handle], Protocol[Handle]):
    """An engine that can also do several jobs in one go, whose trainings may then be done in common steps."""

    def submit_together(self, jobs: Sequence[ClientJob]) -> Handle:
        """As `submit`, for all of them."""

    def results(self, handle: Handle, *, timeout_s: float) -> Sequence[Outcome] | None:
        """As `result`, of jobs that were submitted together, in their order."""
