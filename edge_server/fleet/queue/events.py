"""Events and commands of the queue: the interface of the machine."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_server.fleet.queue.job import Job, JobRun


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
