"""A queue of jobs for tests, driven by hand: no clock, no processes."""

from dataclasses import dataclass, field
from typing import Any

from edge_server.fleet.queue import state
from edge_server.fleet.queue.job import Job, JobRun, Wanted
from edge_server.fleet.queue.machine import step
from edge_server.fleet.queue.turns import take_turns

NOW = 1_800_000_000.0


def job(name: str, **fields: Any) -> Job:
    """A job that is to run now, unless it has a schedule."""
    asked = 0 if fields.get("schedule") else 1
    known = {"action": "run", "words": (f"{name}.toml",), "federation": "home", "folder": "/work"}
    return Job.model_validate({**known, "name": name, "asked": asked, "since": NOW, "owner": "me", **fields})


def devices(*names: str, eligible: int | None = None) -> state.DevicesOfJob:
    """The devices of a job, all of them eligible by default."""
    return state.DevicesOfJob(frozenset(names), len(names) if eligible is None else eligible)


@dataclass
class Driver:
    """Applies events to a queue and keeps the commands."""

    queue: state.Queue = field(default_factory=state.Queue)
    fleet: dict[str, state.DevicesOfJob] = field(default_factory=dict)
    now: float = NOW
    commands: list[state.Command] = field(default_factory=list)

    @classmethod
    def of(cls, *jobs: Job, at_once: int = 2, fleet: dict[str, state.DevicesOfJob] | None = None) -> "Driver":
        """A driver of these jobs, after the first tick."""
        driver = cls(state.Queue(state.QueueRules(at_once=at_once)), fleet or {})
        driver.define(*jobs)
        driver.tick()
        return driver

    def define(self, *jobs: Job) -> None:
        """These are all the jobs."""
        self.apply(state.JobsChanged({job.name: job for job in jobs}))

    def apply(self, event: state.Event) -> list[state.Command]:
        """Apply one event; returns its commands."""
        self.queue, commands = step(self.queue, event, self.now)
        self.commands += commands
        return commands

    def tick(self, seconds: float = 0.0) -> list[state.Command]:
        """Let time pass; with a second tick, in which starts what came due in the first."""
        self.now += seconds
        return self.apply(state.Tick(self.fleet)) + self.apply(state.Tick(self.fleet))

    def want(self, name: str, wanted: Wanted, **fields: Any) -> None:
        """The operator pauses, stops or starts a job."""
        changed = self.queue.jobs[name].model_copy(update={"wanted": wanted, **fields})
        self.define(*{**self.queue.jobs, name: changed}.values())

    def end(self, name: str, code: int | None = 0, *, over: bool = True) -> None:
        """The process of a job's run ends."""
        run = self.run(name)
        self.apply(state.RunEnded(run.name, run.attempt, code, over))

    def run(self, name: str) -> JobRun:
        """The newest run of a job."""
        return self.queue.runs[name]

    def started(self) -> list[str]:
        """The jobs that were started, in order."""
        return [command.job.name for command in self.commands if isinstance(command, state.StartRun)]

    def why(self, name: str) -> str:
        """Why a job waits."""
        return take_turns(self.queue, self.fleet, self.now).reasons[name]
