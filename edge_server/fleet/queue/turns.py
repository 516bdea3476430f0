"""Who of the waiting runs may start now, and why each of the others waits."""

from dataclasses import dataclass, field

from edge_server.fleet.queue.job import Job, JobRun, RunPhase, Wanted
from edge_server.fleet.queue.state import DevicesOfJob, Fleet, Queue
from schemas.errors import format_count

NO_DEVICES = DevicesOfJob()


@dataclass
class Turns:
    """The runs to start, and a reason for each run that waits, by the job's name."""

    starts: list[JobRun] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)


def take_turns(queue: Queue, fleet: Fleet, now: float) -> Turns:
    """Decide about every waiting run, in the order of their shares.

    A run that only waits for devices in use keeps them free of later ones, so that it is not passed by
    forever.
    """
    turns, taken = Turns(), [queue.jobs[run.job] for run in queue.on() if run.job in queue.jobs]
    free = queue.rules.at_once - len(queue.on())
    for run in sorted(queue.queued_runs(), key=lambda run: _order(queue, run)):
        job = queue.jobs[run.job]
        if reason := condition(queue, job, run, fleet, now):
            turns.reasons[job.name] = reason
            continue
        rival = next((other for other in taken if collide(job, other, fleet)), None)
        taken.append(job)
        if rival is not None:
            turns.reasons[job.name] = _busy(queue, job, rival)
        elif free <= 0:
            turns.reasons[job.name] = f"{queue.rules.at_once} jobs run already, and no more may at once"
        else:
            free -= 1
            turns.starts.append(run)
    return turns


def _order(queue: Queue, run: JobRun) -> tuple[bool, float, float, float, str]:
    """What has begun goes on before anything else begins."""
    job = queue.jobs[run.job]
    begun = run.phase is RunPhase.SUSPENDED
    return not begun, queue.shares.tag(job.federation), run.due, job.since, run.name


def condition(queue: Queue, job: Job, run: JobRun, fleet: Fleet, now: float) -> str:
    """Why the run may not start whatever the others do; empty if it may."""
    if queue.closing:
        return "the service is ending"
    if job.wanted is not Wanted.ACTIVE:
        return f"the job is {job.wanted}"
    if now < run.not_before:
        return f"tries again in {run.not_before - now:.0f} s: {run.why}"
    eligible = fleet.get(job.name, NO_DEVICES).eligible
    if eligible >= job.min_eligible:
        return ""
    are = "is" if eligible == 1 else "are"
    return f"waits for {format_count(job.min_eligible, 'eligible device')}, {eligible} {are}"


def collide(job: Job, other: Job, fleet: Fleet) -> bool:
    """Whether two jobs may not run at the same time.

    A federation has one server at a time, and one rollout. A device does one task at a time, also one that
    takes part in two federations under the same name. The devices of one federation count as shared where
    the inventory does not say otherwise.
    """
    if job.federation == other.federation and job.action == other.action:
        return True
    if job.shared and other.shared:
        return False
    devices, others = (fleet.get(each.name, NO_DEVICES).devices for each in (job, other))
    unknown = job.federation == other.federation and not (devices and others)
    return unknown or not devices.isdisjoint(others)


def _busy(queue: Queue, job: Job, rival: Job) -> str:
    run = queue.runs.get(rival.name)
    if run is None or not run.on:
        return f"job {rival.name} is before it, on the same devices"
    if job.federation == rival.federation and job.action == rival.action:
        return f"federation {job.federation} is busy with job {rival.name}"
    return f"its devices are busy with job {rival.name}"
