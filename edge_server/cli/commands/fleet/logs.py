"""`edge-server logs`: the recent log of a device, or its last unexpected end."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from edge_client.cli.options import Option, count_option, device_name
from edge_client.system.plain_text import print_json, say
from edge_server.cli.commands.fleet.asking_devices import ANSWERS, ASKING, age, answer_of
from edge_server.fleet.diagnostics.answers import log_lines, safe

LEVELS = ("debug", "info", "warning", "error")
MAX_LINES = 5_000
HELP = "show the recent log of a device"
EXAMPLES = f"""\
examples:
  edge-server logs pi-3 --since 1h
  edge-server logs pi-3 --level warning --lines 50
  edge-server logs pi-3 --crash             the last exception, fault or kill that ended the client

A device keeps about the last megabyte of its log, over restarts. Of a long log the newest lines are sent.
Times are UTC by the device's clock.

{ANSWERS}
exit codes: 0 done, 1 the device does not answer, 2 bad usage or configuration
"""


OPTIONS = (
    Option("device", device_name, "the device", metavar="DEVICE"),
    Option("--since", age, "lines of the last 90s, 30m, 1h or 2d", metavar="AGE"),
    Option("--level", help="lines of this level and worse (default: all)", default="debug", choices=LEVELS),
    count_option("--lines", "at most the last N lines (default: 1000)", 1_000, {"ge": 1, "le": MAX_LINES}),
    Option("--crash", bool, "show the last unexpected end instead"),
    *ASKING,
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.fleet.diagnostics.inquiry import Terms
    from schemas.messages.remote import Diagnostic

    what = Diagnostic.CRASH if args.crash else Diagnostic.LOGS
    answer = answer_of(args, Terms(what, args.since, args.level, args.lines))
    if args.format == "json":
        print_json(answer)
    elif args.crash:
        say("\n".join(crash_lines(answer.get("crash"))))
    else:
        lines = answer.get("logs")
        for line in lines if isinstance(lines, list) else ():
            say("\n".join(log_lines(line if isinstance(line, dict) else {})))
        if answer.get("left_out"):
            say(f"({safe(answer['left_out'])} earlier lines did not fit)")
    return 0


def crash_lines(crash: Any) -> Iterator[str]:
    """The last unexpected end as text."""
    if not isinstance(crash, dict):
        yield "no unexpected end is recorded"
        return
    at = crash.get("at")
    known = isinstance(at, int | float) and 0 <= at < 1e11
    time = f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}" if known and at is not None else "?"
    thread = f" in thread {crash['thread']}" if crash.get("thread") else ""
    yield safe(f"{time} UTC: {crash.get('cause', '?')}{thread}")
    for part in str(crash.get("text", "")).splitlines():
        yield f"    | {safe(part)}"
