"""A job: what is run, when, on which devices."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError

from edge_server.fleet.queue.schedule import Schedule
from schemas.base import Frozen, Name
from schemas.errors import ConfigError

RUN = "run"  # The action of a federation file; all others are fleet actions

JobName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
"""1 to 40 letters, digits, dots, dashes, underscores: a run's name has the time behind it."""


REMEDIES = {
    "name": "a job's name is 1 to 40 letters, digits, dots, dashes, underscores",
    "weight": "--weight must be above 0 and at most 1000",
}


class Wanted(StrEnum):
    """What the operator wants of a job."""

    ACTIVE = "active"
    PAUSED = "paused"
    STOPPED = "stopped"


class Job(Frozen):
    """A job as the operator has added it.

    `words` are the arguments of the action: a federation file with its overrides, or those of a fleet action.
    Each growth of `asked` asks for a run without regard to the schedule, which counts from `since`.
    """

    name: JobName
    action: str
    words: tuple[str, ...]
    federation: Name
    folder: str
    """The working directory: relative paths of a federation file count from there."""
    schedule: Schedule | None = None
    where: str = ""
    min_eligible: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0, le=1000)
    shared: bool = False
    """Whether the job may use devices at the same time as other shared jobs."""
    wanted: Wanted = Wanted.ACTIVE
    asked: int = 0
    since: float
    owner: str


def make_job(**fields: Any) -> Job:
    """The job of these fields; raises `ConfigError`."""
    try:
        return Job(**fields)
    except ValidationError as error:
        problem = error.errors()[0]
        key = str(problem["loc"][0])
        raise ConfigError(REMEDIES.get(key, f"{key}: {problem['msg']}")) from error


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
        return self.phase in (RunPhase.RUNNING, RunPhase.SUSPENDING, RunPhase.STOPPING)

    @property
    def is_queued(self) -> bool:
        """Whether the run waits for its turn."""
        return self.phase in (RunPhase.WAITING, RunPhase.SUSPENDED)

    @property
    def over(self) -> bool:
        return not self.on and not self.is_queued


def run_name(job: str, due: float) -> str:
    return f"{job}-{datetime.fromtimestamp(due, UTC):%Y%m%d-%H%M%S}"
