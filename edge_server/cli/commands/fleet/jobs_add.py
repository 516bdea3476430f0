"""`edge-server jobs add`: check a job and enter it."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.app import CommandLine
from edge_client.cli.options import ABOVE_0, Group, Option, Subparsers, add_verb, count_option
from edge_client.system.plain_text import print_result
from edge_server.cli.commands import client_release, rollout, run
from edge_server.cli.commands.fleet.serve import SERVICE, service_folder
from schemas.errors import ConfigError, nearest

if TYPE_CHECKING:
    from edge_server.fleet.queue.job import Job
    from edge_server.fleet.settings.service import ServiceSettings
    from edge_server.storage.service_folder import ServiceFolder

EXAMPLES = """\
examples:
  edge-server jobs add try home.toml rounds=2                       once, as soon as possible
  edge-server jobs add nightly home.toml --cron "0 2 * * SUN" --zone Europe/Berlin --min-eligible 12
  edge-server jobs add often home.toml --every 6h --where site=barn --weight 2
  edge-server jobs add push --action rollout --federation home -- --canary 10%
  edge-server jobs add update --action client-rollout --federation home 0.2.0 --at 2026-12-01T03:00
  edge-server jobs add watched home.toml -- --metrics 127.0.0.1:9464

Behind -- stand options of `edge-server run` or of the action. The service adds broker and certificates of
the federation from service.toml, and the run folder. Each run reads the federation file again, but for
[clients] where: the devices of a job are those of --where, or of the file as it is added.

Of the times that a schedule had while the service did not run, one run comes of all; a time at which the
run before is still on is skipped. A cron expression has minute, hour, day of the month, month and day of
the week; `L` is the last day of a month, `SUN#1` the first Sunday.
"""
JOB_COMMANDS = CommandLine(
    prog="edge-server", extra="server", description="", examples="", verbs=(run, rollout, client_release)
)
"""The commands that jobs run."""


SCHEDULE = Group(
    (
        Group(
            (
                Option("--cron", help="by a cron expression, such as '0 2 * * SUN'", metavar="EXPR"),
                Option("--every", help="at fixed distances, such as 30min, 6h, 1d", metavar="TIME"),
                Option("--at", help="once, such as 2026-12-01T02:00", metavar="TIME"),
            ),
            exclusive=True,
        ),
        Option(
            "--zone", help="time zone, such as Europe/Berlin (default: UTC)", default="UTC", metavar="ZONE"
        ),
    ),
    "schedule (default: once, now)",
)
CONDITION = Group(
    (
        Option(
            "--where",
            help="the devices, such as site=barn (default: those of the federation file, else all)",
            default="",
            metavar="SELECTOR",
        ),
        count_option(
            "--min-eligible",
            "run only while N of these devices are online; a run that lacks them is suspended",
            0,
        ),
        Option(
            "--weight",
            float,
            "share of time relative to jobs of other federations (default: 1)",
            1.0,
            "X",
            ABOVE_0,
        ),
        Option("--shared", bool, "may use devices at the same time as shared jobs of other federations"),
    ),
    "devices and turns",
)
OPTIONS = (
    Option("name", help="the job's name, new in this folder", metavar="NAME"),
    Option(
        "words",
        help="federation file or recipe with overrides; with --action the arguments of the action",
        default=(),
        metavar="FEDERATION.toml [KEY=VALUE]",
        nargs="*",
    ),
    SERVICE,
    Option("--action", help="run, rollout or client-rollout (default: run)", default="run", metavar="NAME"),
    Option("--federation", help="the federation of an action", metavar="NAME"),
    SCHEDULE,
    CONDITION,
)


def register(verbs: Subparsers) -> None:
    add_verb(verbs, "add", execute, OPTIONS, help="add a job", examples=EXAMPLES, behind=())


def execute(args: argparse.Namespace) -> int:
    from edge_server.fleet.queue.changes import add_job
    from edge_server.storage.audit_log import local_user

    folder, who = service_folder(args), local_user()
    job = _job(args, folder, who=who, now=time.time())
    add_job(folder, job, who=who)
    hint = f"edge-server jobs show {job.name} shows what it waits for"
    return print_result(args, job.model_dump(mode="json"), f"job {job.name} is added: {_when(job)}", hint)


def _when(job: "Job") -> str:
    from edge_server.fleet.queue.job import clock_text
    from edge_server.fleet.queue.overview import next_at

    if job.schedule is None:
        return "it starts as soon as it is its turn"
    return f"it starts first on {clock_text(next_at(job, None), job.schedule)}"


def _job(args: argparse.Namespace, folder: "ServiceFolder", *, who: str, now: float) -> "Job":
    """The checked job; raises `ConfigError`."""
    from edge_server.fleet.queue.job import RUN, parse_schedule
    from edge_server.fleet.queue.job_actions import ACTIONS
    from edge_server.fleet.settings.service import load_service_settings

    if args.action not in ACTIONS:
        raise ConfigError(f"there is no action '{args.action}'{nearest(args.action, ACTIONS)}")
    settings = load_service_settings(folder.settings)
    schedule = parse_schedule(args.cron, args.every, args.at, args.zone, now=now)
    fields = _run(args) if args.action == RUN else _fleet_action(args, settings)
    job = _make_job(args, **fields, schedule=schedule, since=now, owner=who)
    _check_command(job, settings, folder)
    return job


def _make_job(args: argparse.Namespace, **fields: Any) -> "Job":
    """The job of these options and fields; raises `ConfigError`."""
    from edge_server.fleet.queue.job import make_job

    return make_job(
        name=args.name,
        folder=str(Path.cwd()),
        action=args.action,
        asked=0 if fields["schedule"] else 1,
        min_eligible=args.min_eligible,
        weight=args.weight,
        shared=args.shared,
        **fields,
    )


def _run(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of a federation file, which is checked now: words, federation, devices."""
    from edge_server.config.load import load_config
    from schemas.selectors import parse_where

    if not args.words:
        raise ConfigError(
            "name a federation file or a recipe", remedy="edge-server jobs add NAME FEDERATION.toml"
        )
    if args.federation is not None:
        raise ConfigError("--federation is for actions: the federation file has its own `name`")
    source, *overrides = args.words
    config = load_config(source, overrides)
    place = str(Path(source).absolute()) if Path(source).exists() else source
    return {
        "words": (place, *overrides, *args.behind),
        "federation": config.federation.name,
        "where": str(parse_where(args.where or config.clients.where)),
    }


def _fleet_action(args: argparse.Namespace, settings: "ServiceSettings") -> dict[str, Any]:
    from schemas.selectors import parse_where

    return {
        "words": (*args.words, *args.behind),
        "federation": settings.federation(args.federation).name,
        "where": str(parse_where(args.where)),
    }


def _check_command(job: "Job", settings: "ServiceSettings", folder: "ServiceFolder") -> None:
    """Parse the command line that the service will start; raises `ConfigError`."""
    from edge_server.fleet.queue.job_actions import ACTIONS, command_of, split_words

    served = settings.federation(job.federation)

    def parse_command(job: "Job") -> argparse.Namespace:
        return JOB_COMMANDS.parse(command_of(job, folder.runs / job.name, folder, served, program=()))

    with_options, without = (
        parse_command(job),
        parse_command(job.model_copy(update={"words": split_words(job.words)[0]})),
    )
    for name in ACTIONS[job.action].set_by_service:
        if getattr(with_options, name) != getattr(without, name):
            raise ConfigError(f"--{name} is set by the service for each run", remedy="leave it out")
