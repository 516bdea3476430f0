"""`edge-server doctor`: what is wrong on devices, with remedies."""

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, device_name
from edge_client.system.plain_text import print_json, print_table, say
from edge_server.cli.commands.fleet.asking_devices import ANSWERS, ASKING, as_document, ask
from edge_server.fleet.diagnostics.answers import findings_of, safe, why_none

if TYPE_CHECKING:
    from edge_server.fleet.diagnostics.inquiry import Inquired

LEVELS = ("failure", "warning", "ok")
HELP = "check devices over their connection, with remedies"
EXAMPLES = f"""\
examples:
  edge-server doctor                        every connected device
  edge-server doctor pi-3 pi-4
  edge-server doctor --where site=barn
  edge-server doctor --where 'role in (camera,scale)' --format json

Each device runs the checks of `edge-client doctor` in a process of its own, but for those that would
disconnect it; that takes a minute or two on a small board. A device that passes is one line, others have a
line per problem. Devices that are silent, whose owner has disabled this, or that were asked too often have
lines of their own.

{ANSWERS}
exit codes: 0 no device has a failure, 1 one has, 2 bad usage or configuration
"""


OPTIONS = (
    Option("devices", device_name, "these devices (default: all connected)", metavar="DEVICE", nargs="*"),
    Option("--where", help="connected devices with these labels, such as site=barn", metavar="SELECTOR"),
    *ASKING,
)


def execute(args: argparse.Namespace) -> int:
    from edge_client.cli.app import DONE, FAILED
    from edge_server.fleet.diagnostics.inquiry import Terms
    from schemas.messages.remote import Diagnostic

    where = args.where if args.where is not None or args.devices else ""
    found = ask(args, Terms(Diagnostic.DOCTOR), args.devices, where)
    devices = sorted(found.values(), key=lambda device: (LEVELS.index(level_of(device)), device.device))
    if args.format == "json":
        print_json([as_document(device) for device in devices])
    elif not devices:
        say("no connected device is chosen")
    else:
        rows = [row for device in devices for row in rows_of(device)]
        print_table(("device", "result", "check", "what", "remedy"), rows)
        say(summary(devices))
    return FAILED if any(level_of(device) == "failure" for device in devices) else DONE


def level_of(device: "Inquired") -> str:
    """The worst level of a device's findings; a device without an answer has a warning."""
    if device.document is None:
        return "warning"
    levels = {finding.get("level") for finding in findings_of(device.document)}
    return next((level for level in LEVELS if level in levels), "warning")


def rows_of(device: "Inquired") -> Iterator[tuple[str, ...]]:
    """A line per problem, or one line."""
    if device.document is None:
        yield device.device, str(device.status), "-", why_none(device), ""
        return
    findings = findings_of(device.document)
    problems = [finding for finding in findings if finding.get("level") != "ok"]
    for finding in problems:
        texts = (finding.get(key, "") for key in ("level", "check", "detail", "remedy"))
        yield (device.device, *map(safe, texts))
    if not problems:
        passed = f"{len(findings)} checks passed" if findings else "its answer has no findings"
        yield device.device, level_of(device), "-", passed, ""


def summary(devices: "list[Inquired]") -> str:
    """How many devices there are of each kind."""
    from edge_server.config.units import counted_text

    kinds = Counter(
        level_of(device) if device.document is not None else str(device.status) for device in devices
    )
    return f"{counted_text(len(devices), 'device')}: " + ", ".join(
        f"{count} {kind}" for kind, count in kinds.items()
    )
