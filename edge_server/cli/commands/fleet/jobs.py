"""`edge-server jobs`: the queue of jobs of a fleet service."""

import argparse
import time
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, Subparsers, add_verbs
from edge_client.system.plain_text import print_json, print_result, print_rows, print_table, say
from edge_server.cli.commands.fleet import jobs_add
from edge_server.cli.commands.fleet.serve import SERVICE, service_folder

if TYPE_CHECKING:
    from edge_server.fleet.queue.job import Job, JobRun
    from edge_server.fleet.queue.overview import JobOverview

EXAMPLES = """\
examples:
  edge-server jobs add nightly home.toml --cron "0 2 * * SUN" --zone Europe/Berlin --min-eligible 12
  edge-server jobs list
  edge-server jobs show nightly
  edge-server jobs logs nightly --follow
  edge-server jobs stop nightly

`edge-server serve DIR` runs the jobs of its folder; the commands work on the folder, whether or not it runs.
"""

VERBS = {
    "start": ("run a job now, or let a paused one continue", "{name} starts as soon as it is its turn"),
    "pause": ("suspend a job until it is started again", "{name} is paused; `jobs start` continues it"),
    "stop": ("end a job's run and follow its schedule no more", "{name} is stopped"),
    "remove": ("remove a job; its run folders stay", "{name} is removed"),
}


def register(subparsers: Subparsers) -> None:
    verbs = add_verbs(
        subparsers,
        "jobs",
        SERVICE,
        help="queue and schedule federations and fleet actions",
        description="The queue of jobs of a fleet service.",
        examples=EXAMPLES,
    )
    jobs_add.register(verbs.verbs)
    name_of_job = Option("name", metavar="NAME")
    about = "every job with its state and next time"
    verbs.add("list", list_jobs, help=about, example="list")
    about = "a job, why it waits, and its last runs"
    verbs.add("show", show_job, name_of_job, help=about, example="show nightly")
    for name, (about, _) in VERBS.items():
        verbs.add(name, change, name_of_job, help=about, example=f"{name} nightly")
    about, example = "the output of a job's newest run", "logs nightly --follow"
    run = Option("name", help="a job, or one of its runs", metavar="NAME|RUN")
    follow = Option("--follow", bool, "continue until the run is over")
    verbs.add("logs", logs, run, follow, help=about, example=example)


def _overviews(args: argparse.Namespace) -> "dict[str, JobOverview]":
    from edge_server.fleet.queue.overview import read_overviews
    from edge_server.fleet.settings.service import load_service_settings

    folder = service_folder(args)
    rules = load_service_settings(folder.settings).jobs
    return read_overviews(folder, at_once=rules.at_once, now=time.time())


def list_jobs(args: argparse.Namespace) -> int:
    overviews = _overviews(args).values()
    columns = ("job", "what", "federation", "state", "schedule", "next", "why")
    return print_rows(args, [each.document() for each in overviews], columns, [*map(_line, overviews)])


def _line(overview: "JobOverview") -> tuple[str, ...]:
    job = overview.job
    return (
        job.name,
        _what(job),
        job.federation,
        overview.state,
        "-" if job.schedule is None else str(job.schedule),
        _clock(overview.next_at, job),
        overview.why or "-",
    )


def _what(job: "Job") -> str:
    from pathlib import Path

    from edge_server.fleet.queue.job import RUN

    words = [Path(job.words[0]).name, *job.words[1:]] if job.action == RUN else [job.action, *job.words]
    return " ".join(words)


def _clock(at: float | None, job: "Job") -> str:
    from edge_server.fleet.queue.job import clock_text

    return clock_text(at, job.schedule)


def show_job(args: argparse.Namespace) -> int:
    from schemas.errors import ConfigError, nearest

    overviews = _overviews(args)
    if args.name not in overviews:
        raise ConfigError(
            f"there is no job '{args.name}' in {service_folder(args).path}{nearest(args.name, overviews)}"
        )
    overview = overviews[args.name]
    if args.format == "json":
        print_json(overview.document())
        return 0
    for name, value in _facts(overview):
        say(f"{name:<12}{value}")
    if overview.runs:
        say()
        rows = [_run_line(run, overview.job) for run in overview.runs]
        print_table(("run", "by", "phase", "attempts", "began", "ended", "why"), rows)
    return 0


def _facts(overview: "JobOverview") -> list[tuple[str, str]]:
    job = overview.job
    facts = [
        ("job", job.name),
        ("what", _what(job)),
        ("federation", job.federation),
        ("state", overview.state + (f": {overview.why}" if overview.why else "")),
        ("schedule", "none" if job.schedule is None else str(job.schedule)),
        ("next", _clock(overview.next_at, job)),
        ("devices", f"{overview.devices}, {overview.eligible} of them eligible"),
        ("where", job.where or "all devices of the federation"),
        ("needs", f"{job.min_eligible} or more eligible" if job.min_eligible else "-"),
        ("weight", f"{job.weight:g}"),
        ("added by", job.owner),
    ]
    return facts + ([("missed", f"{overview.missed} times: a run was still on")] if overview.missed else [])


def _run_line(run: "JobRun", job: "Job") -> tuple[str, ...]:
    return (
        run.name,
        run.by,
        str(run.phase),
        str(run.attempt),
        _clock(run.began_at, job),
        _clock(run.ended_at, job),
        run.why or "-",
    )


def change(args: argparse.Namespace) -> int:
    from edge_server.fleet.queue import changes
    from edge_server.storage.audit_log import local_user

    folder, who, verb = service_folder(args), local_user(), args.jobs_verb
    match verb:
        case "start":
            job = changes.start_job(folder, args.name, who=who, now=time.time())
        case "pause":
            job = changes.pause_job(folder, args.name, who=who)
        case "stop":
            job = changes.stop_job(folder, args.name, who=who)
        case _:
            job = changes.remove_job(folder, args.name, who=who)
    return print_result(args, job.model_dump(mode="json"), VERBS[verb][1].format(name=f"job {args.name}"))


def logs(args: argparse.Namespace) -> int:
    import sys

    from edge_server.fleet.queue.log_reader import find_log, read_log

    log = find_log(service_folder(args), args.name)
    if args.format == "json":
        lines = [line for block in read_log(log) for line in block.splitlines()]
        print_json({"run": log.run, "path": str(log.path), "lines": lines})
        return 0
    for block in read_log(log, follow=args.follow):
        say(block, end="")
        sys.stdout.flush()
    return 0
