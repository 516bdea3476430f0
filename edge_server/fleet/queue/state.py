"""The state of the queue, and the events and commands of its machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_server.fleet.queue.job import Job, JobRun
from schemas.base import Frozen


@dataclass(frozen=True)
class DevicesOfJob:
    """The devices that a job's selector chooses; `eligible` of them may train now."""

    devices: frozenset[str] = frozenset()
    eligible: int = 0


Fleet = Mapping[str, DevicesOfJob]  # The devices of each job, by the job's name


@dataclass(frozen=True)
class JobsChanged:
    """Event: the operator has added, changed or removed jobs; these are all there are."""

    jobs: Mapping[str, Job]


@dataclass(frozen=True)
class RunEnded:
    """Event: the process of a run's attempt has ended.

    `code` is its exit code, negative for a signal, None if nobody knows; `over` is whether the work has come
    to its end, so that another attempt would be for nothing. `said` is the last line of its log.
    """

    run: str
    attempt: int
    code: int | None
    over: bool = True
    said: str = ""


@dataclass(frozen=True)
class Tick:
    """Event: time has passed; the devices as they are now."""

    fleet: Fleet = field(default_factory=dict)


@dataclass(frozen=True)
class Closing:
    """Event: the service ends; its runs are suspended and go on when it is started again."""


Event = JobsChanged | RunEnded | Tick | Closing


@dataclass(frozen=True)
class StartRun:
    """Command: start the process of a run's attempt."""

    job: Job
    run: JobRun


@dataclass(frozen=True)
class SuspendRun:
    """Command: let the process end so that it can go on later."""

    run: str


@dataclass(frozen=True)
class EndRun:
    """Command: let the process complete its run and end."""

    run: str


@dataclass(frozen=True)
class KillRun:
    """Command: end a process that has not ended on request."""

    run: str


Command = StartRun | SuspendRun | EndRun | KillRun


# Fair shares of time between federations, by weights: start-time fair queueing.
#
# Each federation has a tag that grows by the time that its jobs run, divided by their weight; who waits with
# the smallest tag is next. A federation that had nothing to run starts at the tag of the newest start, so
# that idle time is no credit. Goyal et al., "Start-time Fair Queueing", SIGCOMM 1996.


@dataclass(frozen=True)
class Shares:
    """The tag of each federation in weighted seconds, and that of the newest start."""

    tags: Mapping[str, float] = field(default_factory=dict)
    newest: float = 0.0

    def tag(self, federation: str) -> float:
        """The tag with which a run of this federation would start; the smallest is next."""
        return max(self.tags.get(federation, 0.0), self.newest)

    def with_start(self, federation: str) -> "Shares":
        tag = self.tag(federation)
        return Shares({**self.tags, federation: tag}, tag)

    def with_use(self, federation: str, seconds: float, weight: float) -> "Shares":
        """Its jobs have run for this number of seconds."""
        tag = self.tags.get(federation, 0.0) + seconds / weight
        return replace(self, tags={**self.tags, federation: tag})


@dataclass(frozen=True)
class QueueRules:
    """What holds for all jobs: how many run at once, and how patient the queue is, in seconds."""

    at_once: int = 2
    grace_s: float = 300.0  # How long a running job may lack eligible devices before it is suspended
    end_s: float = 540.0  # How long a process may take to end on request before it is killed
    crashes: int = 5  # Processes of a run that may break down one after the other
    retry_s: float = 2.0  # The wait after the first of them, which doubles each time


class JobProgress(Frozen):
    """How far a job's schedule and requests have been followed.

    `since` is the job's beginning that `next_at` was computed from, `answered` the number of requests to run,
    `last_due` the time of its newest run, `missed` counts the times at which an earlier run was still on.
    """

    since: float
    next_at: float | None = None
    answered: int = 0
    last_due: float = 0.0
    missed: int = 0


@dataclass(frozen=True)
class Queue:
    """All jobs, their newest runs and their progress, by the job's name."""

    rules: QueueRules = field(default_factory=QueueRules)
    jobs: Mapping[str, Job] = field(default_factory=dict)
    runs: Mapping[str, JobRun] = field(default_factory=dict)
    progress: Mapping[str, JobProgress] = field(default_factory=dict)
    shares: Shares = field(default_factory=Shares)
    closing: bool = False

    def with_run(self, run: JobRun) -> "Queue":
        """With this run as the newest of its job."""
        return replace(self, runs={**self.runs, run.job: run})

    def with_progress(self, job: str, progress: JobProgress) -> "Queue":
        """With this progress of a job."""
        return replace(self, progress={**self.progress, job: progress})

    def run(self, name: str) -> JobRun | None:
        """The newest run of a job by the run's own name."""
        return next((run for run in self.runs.values() if run.name == name), None)

    def on(self) -> tuple[JobRun, ...]:
        return tuple(run for run in self.runs.values() if run.on)

    def queued_runs(self) -> tuple[JobRun, ...]:
        return tuple(run for run in self.runs.values() if run.is_queued)


Step = tuple[Queue, list[Command]]
