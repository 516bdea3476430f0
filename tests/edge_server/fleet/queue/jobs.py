"""A queue of jobs for tests, driven by hand: no clock, no processes."""

from dataclasses import dataclass, field
from typing import Any

from edge_server.fleet.queue.job import Job, JobRun, Wanted
from edge_server.fleet.queue.machine import step
from edge_server.fleet.queue.state import (
    Command,
    DevicesOfJob,
    Event,
    JobsChanged,
    Queue,
    QueueRules,
    RunEnded,
    StartRun,
    Tick,
)
from edge_server.fleet.queue.turns import take_turns

NOW = 1_800_000_000.0


def job(name: str, **fields: Any) -> Job:
    """A job that is to run now, unless it has a schedule."""
    asked = 0 if fields.get("schedule") else 1
    known = {"action": "run", "words": (f"{name}.toml",), "federation": "home", "folder": "/work"}
    return Job.model_validate({**known, "name": name, "asked": asked, "since": NOW, "owner": "me", **fields})


def devices(*names: str, eligible: int | None = None) -> DevicesOfJob:
    """The devices of a job, all of them eligible by default."""
    return DevicesOfJob(frozenset(names), len(names) if eligible is None else eligible)


@dataclass
class Driver:
    """Applies events to a queue and keeps the commands."""

    queue: Queue = field(default_factory=Queue)
    fleet: dict[str, DevicesOfJob] = field(default_factory=dict)
    now: float = NOW
    commands: list[Command] = field(default_factory=list)

    @classmethod
    def of(cls, *jobs: Job, at_once: int = 2, fleet: dict[str, DevicesOfJob] | None = None) -> "Driver":
        """A driver of these jobs, after the first tick."""
        driver = cls(Queue(QueueRules(at_once=at_once)), fleet or {})
        driver.define(*jobs)
        driver.tick()
        return driver

    def define(self, *jobs: Job) -> None:
        """These are all the jobs."""
        self.apply(JobsChanged({job.name: job for job in jobs}))

    def apply(self, event: Event) -> list[Command]:
        """Apply one event; returns its commands."""
        self.queue, commands = step(self.queue, event, self.now)
        self.commands += commands
        return commands

    def tick(self, seconds: float = 0.0) -> list[Command]:
        """Let time pass; with a second tick, in which starts what came due in the first."""
        self.now += seconds
        return self.apply(Tick(self.fleet)) + self.apply(Tick(self.fleet))

    def want(self, name: str, wanted: Wanted, **fields: Any) -> None:
        """The operator pauses, stops or starts a job."""
        changed = self.queue.jobs[name].model_copy(update={"wanted": wanted, **fields})
        self.define(*{**self.queue.jobs, name: changed}.values())

    def end(self, name: str, code: int | None = 0, *, over: bool = True) -> None:
        """The process of a job's run ends."""
        run = self.run(name)
        self.apply(RunEnded(run.name, run.attempt, code, over))

    def run(self, name: str) -> JobRun:
        """The newest run of a job."""
        return self.queue.runs[name]

    def started(self) -> list[str]:
        """The jobs that were started, in order."""
        return [command.job.name for command in self.commands if isinstance(command, StartRun)]

    def why(self, name: str) -> str:
        """Why a job waits."""
        return take_turns(self.queue, self.fleet, self.now).reasons[name]
