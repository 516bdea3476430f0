"""Actions on jobs and rollouts; a rollout runs as a job of the service."""

from typing import Any

from edge_server.config import load, measures
from edge_server.fleet.actions.action import Args, Change, Desk
from edge_server.fleet.people.values import Actor
from edge_server.fleet.queue import changes, overview
from edge_server.fleet.queue.job import RUN, Job, make_job, parse_schedule
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.open import check_signed
from schemas.errors import ConfigError
from schemas.selectors import parse_where

WITHDRAW = "--withdraw"


def start_job(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    job = changes.start_job(desk.folder, args["job"], who=actor.who, now=now)
    return Change(job.name, said=f"{job.name} starts as soon as it is its turn", recorded=True)


def pause_job(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    job = changes.pause_job(desk.folder, args["job"], who=actor.who)
    return Change(job.name, said=f"{job.name} is paused", recorded=True)


def stop_job(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    job = changes.stop_job(desk.folder, args["job"], who=actor.who)
    return Change(job.name, said=f"{job.name} is stopped", recorded=True)


def add_job(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    source, *overrides = args["words"].split()
    place = _federation_file(desk, source)
    for word in overrides:
        if word.startswith("-") or ":" in word:
            # A key may name a function of any module of this machine.
            raise ConfigError(
                f"'{word}' is not set from here", remedy="write it into the file, or use the command"
            )
    config = load.load_config(place, overrides)
    if args["cron"] and args["every"]:
        raise ConfigError("name a cron expression or a distance, not both")
    cron, every, zone = args["cron"] or None, args["every"] or None, args["zone"] or "UTC"
    schedule = parse_schedule(cron, every, None, zone, now=now)
    job = _make(
        desk,
        args["job"],
        actor,
        now,
        action=RUN,
        words=(place, *overrides),
        federation=desk.settings.federation(config.federation.name).name,
        schedule=schedule,
        asked=0 if schedule else 1,
        where=str(parse_where(args["where"] or config.clients.where)),
        min_eligible=_count(args["min_eligible"] or "0"),
    )
    when = "by its schedule" if schedule else "as soon as it is its turn"
    return Change(job.name, said=f"the job {job.name} is added, and starts {when}", recorded=True)


def start_rollout(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    version = Registry.existing(desk.folder.registry).version(args["version"])
    check_signed(version)
    job = _rollout(desk, args["job"], actor, now, version.federation, version.version)
    return Change(job.name, said=f"the job {job.name} brings {version.version} to the devices", recorded=True)


def withdraw(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    version = Registry.existing(desk.folder.registry).version(args["version"])
    known = overview.rollout_jobs(desk.folder, desk.settings.jobs.at_once, now).get(version.version)
    if known is not None and WITHDRAW in known.words:
        raise ConfigError(f"the job {known.name} withdraws {version.version} already")
    job = _rollout(desk, args["job"], actor, now, version.federation, version.version, WITHDRAW)
    if known is not None:
        changes.stop_job(desk.folder, known.name, who=actor.who)
    said = f"the job {job.name} returns the devices of {version.version} to the model before"
    return Change(job.name, said=said, recorded=True)


def _rollout(desk: Desk, name: str, actor: Actor, now: float, federation: str, *words: str) -> Job:
    served = desk.settings.federation(federation).name
    return _make(desk, name, actor, now, action=overview.ROLLOUT, words=words, federation=served, asked=1)


def _make(desk: Desk, name: str, actor: Actor, now: float, **fields: Any) -> Job:
    folder = str(desk.folder.path.resolve())
    job = make_job(name=name, folder=folder, since=now, owner=actor.who, **fields)
    changes.add_job(desk.folder, job, who=actor.who)
    return job


def _federation_file(desk: Desk, source: str) -> str:
    """A file in the service's folder, or a recipe: the page opens no other files of this machine."""
    folder = desk.folder.path.resolve()
    path = (folder / source).resolve()
    if path.is_relative_to(folder) and path.is_file():
        return str(path)
    if source not in load.recipe_names():
        raise ConfigError(f"there is no recipe '{source}', and no such file in the service's folder {folder}")
    return source


def _count(text: str) -> int:
    if (count := measures.parse_digits(text)) is None:
        raise ConfigError(f"'{text}' is not a number of devices")
    return count
