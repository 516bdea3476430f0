"""What a simulation asks of an engine: do the devices' work somewhere, and hand back what came of it.

An engine decides where and when a job is done, never what comes of it: any engine gives the same outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from schemas.errors import EdgeError
from schemas.values import Reason

Handle = TypeVar("Handle")


class EngineError(EdgeError):
    """The engine itself broke; the simulation cannot go on."""


@dataclass(frozen=True)
class Job:
    """One device's task, as JSON. Its arrays lie in the blob store that all share."""

    device: str
    task: str


@dataclass(frozen=True)
class Outcome:
    """What came of a job: the device's answer as JSON, or why there is none."""

    answer: str | None
    reason: Reason = Reason.TASK_FAILED
    detail: str = ""


class Engine(Protocol[Handle]):
    """Does jobs, several at once; all calls come from one thread."""

    def submit(self, job: Job) -> Handle:
        """Begin a job as soon as there is room for it."""
        ...

    def result(self, handle: Handle, *, timeout_s: float) -> Outcome | None:
        """The job's outcome; None if it is not there within the time. Raises `EngineError`."""
        ...

    def cancel(self, handle: Handle) -> None:
        """Nobody will ask for this job's outcome."""
        ...

    def close(self) -> None:
        """Let go of everything; jobs that are not done are dropped."""
        ...
