"""One run of a job, from the time at which it is due to its end."""

from datetime import UTC, datetime
from enum import StrEnum

from schemas.base import Frozen


class RunPhase(StrEnum):
    """Where a run of a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    SUSPENDING = "suspending"
    STOPPING = "stopping"
    SUSPENDED = "suspended"
    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"


ON = frozenset({RunPhase.RUNNING, RunPhase.SUSPENDING, RunPhase.STOPPING})
"""Phases in which the run has a process."""
QUEUED = frozenset({RunPhase.WAITING, RunPhase.SUSPENDED})
"""Phases in which the run waits for its turn."""


class JobRun(Frozen):
    """One run; `name` is that of its folder.

    `attempt` counts its processes, `crashes` those in a row that broke down. `counted_at` is until when its
    time is counted for its federation's share; `short_since` is since when it lacks devices.
    """

    name: str
    job: str
    due: float
    by: str
    phase: RunPhase = RunPhase.WAITING
    attempt: int = 0
    crashes: int = 0
    not_before: float = 0.0
    began_at: float | None = None
    attempt_at: float = 0.0
    counted_at: float = 0.0
    short_since: float | None = None
    signalled_at: float | None = None
    ended_at: float | None = None
    code: int | None = None
    why: str = ""

    @property
    def on(self) -> bool:
        """Whether the run has a process, or is about to have one."""
        return self.phase in ON

    @property
    def queued(self) -> bool:
        """Whether the run waits for its turn."""
        return self.phase in QUEUED

    @property
    def over(self) -> bool:
        return not self.on and not self.queued


def run_name(job: str, due: float) -> str:
    """The name of the run of a job that is due at that time."""
    return f"{job}-{datetime.fromtimestamp(due, UTC):%Y%m%d-%H%M%S}"
