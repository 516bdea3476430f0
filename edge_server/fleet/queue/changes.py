"""What an operator changes in the queue; each change is in the audit log.

The functions work on the folder, whether or not a service runs there; a running one notices within a second.
`who` is as in the audit log, `now` in seconds since 1970.
"""

from collections.abc import Callable
from contextlib import closing

from edge_server.fleet.queue.job import Job, Wanted
from edge_server.fleet.queue.journal import JobJournal
from edge_server.storage import audit_log
from edge_server.storage.service_folder import ServiceFolder


def add_job(folder: ServiceFolder, job: Job, *, who: str) -> None:
    """Add a job; raises `ConfigError` if there is one of that name."""
    with closing(JobJournal(folder.jobs)) as journal:
        journal.add(job)
    audit_log.append_entry(folder.audit, who=who, what="job added", target=job.name, after=_document(job))


def start_job(folder: ServiceFolder, name: str, *, who: str, now: float) -> Job:
    """Let a paused job go on; let any other one run now, and follow its schedule again."""

    def with_start(job: Job) -> Job:
        asked = job.asked if job.wanted is Wanted.PAUSED else job.asked + 1
        since = job.since if job.wanted is Wanted.ACTIVE else now
        return job.model_copy(update={"wanted": Wanted.ACTIVE, "asked": asked, "since": since})

    return _change(folder, name, with_start, who=who, what="job started")


def pause_job(folder: ServiceFolder, name: str, *, who: str) -> Job:
    return _want(folder, name, Wanted.PAUSED, who=who, what="job paused")


def stop_job(folder: ServiceFolder, name: str, *, who: str) -> Job:
    return _want(folder, name, Wanted.STOPPED, who=who, what="job stopped")


def remove_job(folder: ServiceFolder, name: str, *, who: str) -> Job:
    """Remove a job; its run folders stay. Raises `ConfigError` while a run is not over."""
    with closing(JobJournal(folder.jobs)) as journal:
        job = journal.remove(name)
    audit_log.append_entry(folder.audit, who=who, what="job removed", target=name, before=_document(job))
    return job


def _want(folder: ServiceFolder, name: str, wanted: Wanted, *, who: str, what: str) -> Job:
    return _change(folder, name, lambda job: job.model_copy(update={"wanted": wanted}), who=who, what=what)


def _change(folder: ServiceFolder, name: str, change: Callable[[Job], Job], *, who: str, what: str) -> Job:
    with closing(JobJournal(folder.jobs)) as journal:
        before, after = journal.change(name, change)
    audit_log.append_entry(
        folder.audit, who=who, what=what, target=name, before=str(before.wanted), after=str(after.wanted)
    )
    return after


def _document(job: Job) -> dict[str, object]:
    return job.model_dump(mode="json", exclude={"name", "asked", "since", "wanted"})
