"""What a person wants to know of each job: state, next time, why it waits, how its runs ended."""

from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass

from edge_server.fleet.queue import job as schedule
from edge_server.fleet.queue import turns
from edge_server.fleet.queue.job import Job, JobRun, Wanted
from edge_server.fleet.queue.journal import JobJournal
from edge_server.fleet.queue.state import DevicesOfJob, JobProgress, Queue, QueueRules
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.records import InventoryDevice
from edge_server.storage.service_folder import ServiceFolder
from schemas.base import fields_of
from schemas.selectors import parse_where

SHOWN_RUNS = 10
ROLLOUT = "rollout"  # The action of jobs that run `edge-server rollout`
OVER = frozenset({"done", "failed", "stopped"})  # States of a job that has nothing to stop


@dataclass(frozen=True)
class JobOverview:
    """A job with what has become of it; `next_at` in seconds since 1970, `eligible` devices are online."""

    job: Job
    state: str
    next_at: float | None
    why: str
    devices: int
    eligible: int
    missed: int
    runs: tuple[JobRun, ...]

    def document(self) -> dict[str, object]:
        return {
            "job": self.job.model_dump(mode="json"),
            **fields_of(self, "state", "next_at", "why", "devices", "eligible", "missed"),
            "runs": [run.model_dump(mode="json", exclude={"counted_at"}) for run in self.runs],
        }


def read_overviews(folder: ServiceFolder, *, at_once: int, now: float) -> dict[str, JobOverview]:
    served = folder.is_served()
    with closing(JobJournal(folder.jobs)) as journal, closing(Inventory(folder.inventory)) as inventory:
        queue = journal.load_queue(QueueRules(at_once=at_once))
        fleet = devices_of_jobs(inventory, queue.jobs.values())
        reasons = turns.take_turns(queue, fleet, now).reasons
        return {
            name: JobOverview(
                job=job,
                state=_state(queue, job),
                next_at=next_at(job, queue.progress.get(name)),
                why=_why(queue, job, reasons, served=served),
                devices=len(fleet[name].devices),
                eligible=fleet[name].eligible,
                missed=queue.progress[name].missed if name in queue.progress else 0,
                runs=tuple(journal.runs(name, most=SHOWN_RUNS)),
            )
            for name, job in queue.jobs.items()
        }


def rollout_jobs(folder: ServiceFolder, at_once: int, now: float) -> dict[str, Job]:
    overviews = read_overviews(folder, at_once=at_once, now=now).values()
    running = [seen.job for seen in overviews if seen.job.action == ROLLOUT and seen.state not in OVER]
    return {job.words[0]: job for job in running if job.words}


def next_at(job: Job, progress: JobProgress | None) -> float | None:
    """When the job's schedule is due next; None without a schedule, and for a job that is not active."""
    if job.schedule is None or job.wanted is not Wanted.ACTIVE:
        return None
    if progress is not None and progress.since == job.since:
        return progress.next_at
    return schedule.next_time(job.schedule, job.since, since=job.since)


def _state(queue: Queue, job: Job) -> str:
    """The phase of a run that is not over, else what the operator wants, else how the last run ended."""
    run = queue.runs.get(job.name)
    if _is_due(queue, job):
        return "waiting"
    if run is not None and not run.over:
        return f"{run.phase}"
    if job.wanted is not Wanted.ACTIVE:
        return f"{job.wanted}"
    return "scheduled" if next_at(job, queue.progress.get(job.name)) else f"{run.phase}" if run else "waiting"


def _is_due(queue: Queue, job: Job) -> bool:
    """Whether the service has yet to answer a request to run."""
    run, progress = queue.runs.get(job.name), queue.progress.get(job.name)
    answered = progress.answered if progress is not None else 0
    return job.wanted is Wanted.ACTIVE and job.asked > answered and (run is None or run.over)


def _why(queue: Queue, job: Job, reasons: Mapping[str, str], *, served: bool) -> str:
    run = queue.runs.get(job.name)
    waits = _is_due(queue, job) or (run is not None and run.is_queued)
    if not served and (waits or (run is not None and run.on)):
        return "no service runs in this folder: edge-server serve"
    if waits:
        return reasons.get(job.name, "starts in a moment")
    return run.why if run is not None else ""


def devices_of_jobs(inventory: Inventory, jobs: Iterable[Job]) -> dict[str, DevicesOfJob]:
    """The devices that each job's selector chooses, and how many of them are online and not revoked."""
    jobs = list(jobs)
    known = {name: inventory.devices(federation=name) for name in {job.federation for job in jobs}}
    return {job.name: _chosen(job, known[job.federation]) for job in jobs}


def _chosen(job: Job, devices: Iterable[InventoryDevice]) -> DevicesOfJob:
    where = parse_where(job.where)
    chosen = [device for device in devices if device.revoked_at is None and where.matches(device.selectable)]
    return DevicesOfJob(frozenset(device.device for device in chosen), sum(device.alive for device in chosen))
