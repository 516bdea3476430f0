"""`edge-server profile`: what a device's board is, and how it is now."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from edge_client.cli.options import Option, device_name
from edge_client.system.plain_text import print_json, print_table
from edge_server.cli.commands.fleet.asking_devices import ANSWERS, ASKING, answer_of
from edge_server.fleet.diagnostics.answers import safe

HELP = "describe a device's board as it is now"
EXAMPLES = f"""\
examples:
  edge-server profile pi-3
  edge-server profile pi-3 --format json

The board is read now. Speeds are those that `edge-client profile` has measured there; nothing is measured.

{ANSWERS}
exit codes: 0 done, 1 the device does not answer, 2 bad usage or configuration
"""


OPTIONS = (Option("device", device_name, "the device", metavar="DEVICE"), *ASKING)


def execute(args: argparse.Namespace) -> int:
    from edge_server.fleet.diagnostics.inquiry import Terms
    from schemas.messages.remote import Diagnostic

    answer = answer_of(args, Terms(Diagnostic.PROFILE))
    found = answer.get("profile")
    if args.format == "json":
        print_json(answer)
    else:
        parts = found if isinstance(found, dict) else {}
        print_table(("what", "there"), [row for part in parts.values() for row in rows_of("", part)])
    return 0


def rows_of(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """The values of a nested document with their paths; empty ones are left out."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from rows_of(f"{name}.{key}" if name else str(key), part)
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from rows_of(f"{name}.{number}", part)
    elif value not in (None, ""):
        yield safe(name.replace("_", " ")), safe(value)
