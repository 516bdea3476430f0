"""Actions on jobs and rollouts; a rollout runs as a job of the service."""

from edge_server.coordinator.service.actions.action import Args, Change, Desk
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.open import check_signed
from edge_server.rounds.queue.job import Job
from edge_server.security.people.values import Actor
from edge_server.storage.job_queue import changes
from schemas.errors import ConfigError

ROLLOUT = "rollout"
"""The action of jobs that run `edge-server rollout`."""
LONGEST_NAME = 40


def start(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    """Run a job now, or let a paused one go on."""
    job = changes.start_job(desk.folder, args["job"], who=actor.who, now=now)
    return Change(job.name, said=f"{job.name} starts as soon as it is its turn", recorded=True)


def pause(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    """Suspend a job until it is started again."""
    job = changes.pause_job(desk.folder, args["job"], who=actor.who)
    return Change(job.name, said=f"{job.name} is paused", recorded=True)


def stop(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    """End a job's run, and follow its schedule no more."""
    job = changes.stop_job(desk.folder, args["job"], who=actor.who)
    return Change(job.name, said=f"{job.name} is stopped", recorded=True)


def start_rollout(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    """Add a job that brings a version to the devices of its federation."""
    version = Registry.existing(desk.folder.registry).version(args["version"])
    check_signed(version)
    served = desk.settings.federation(version.federation)
    job = Job(
        name=_job_name(args["job"]),
        action=ROLLOUT,
        words=(version.version,),
        federation=served.name,
        folder=str(desk.folder.path),
        asked=1,
        since=now,
        owner=actor.who,
    )
    changes.add_job(desk.folder, job, who=actor.who)
    return Change(job.name, said=f"the job {job.name} brings {version.version} to the devices", recorded=True)


def _job_name(name: str) -> str:
    from pydantic import TypeAdapter, ValidationError

    from edge_server.rounds.queue.job import JobName

    try:
        return TypeAdapter(JobName).validate_python(name)
    except ValidationError:
        raise ConfigError(
            f"'{name}': 1 to {LONGEST_NAME} letters, digits, dots, dashes, underscores"
        ) from None
