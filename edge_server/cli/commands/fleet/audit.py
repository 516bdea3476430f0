"""`edge-server audit`: who changed what."""

import argparse
import contextlib
import json
import time
from typing import TYPE_CHECKING

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_result, print_rows
from edge_server.cli.commands.fleet import serve, users
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.storage.audit_log import AuditEntry
    from edge_server.storage.service_folder import ServiceFolder

HELP = "who changed what in a service"
EXAMPLES = """\
examples:
  edge-server audit --since 7d
  edge-server audit --who ada --what devices.label
  edge-server audit --verify          has a line been changed or removed since?

Each line of audit.jsonl has the digest of the line before it. Who can write the folder can also write a whole
new log: keep the last digest that --verify prints, or a copy of the file, elsewhere.
"""


def moment(text: str) -> float:
    """A time (seconds since 1970) from a date, or from a duration before now; an argparse type."""
    from datetime import datetime

    from edge_server.config.measures import parse_duration

    with contextlib.suppress(ConfigError):
        return time.time() - parse_duration(text)
    try:
        return datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(
            f"'{text}' is neither a date such as 2026-11-01 nor a duration such as 7d or 12h"
        ) from None


OPTIONS = (
    serve.SERVICE,
    Option("--since", moment, "2026-11-01, 2026-11-01T12:00, or 7d, 12h", 0.0, "TIME"),
    Option("--who", help="of whom (a part of the name)", default="", metavar="TEXT"),
    Option("--what", help="which action or target (a part of it)", default="", metavar="TEXT"),
    Option("--verify", bool, "check that no line was changed or removed"),
)


def execute(args: argparse.Namespace) -> int:
    from edge_server.storage import audit_log

    folder = serve.service_folder(args)
    if args.verify:
        return _verify(args, folder)
    entries = [entry for entry in audit_log.read_entries(folder.audit) if _is_asked(args, entry)]
    document = {"entries": [entry.model_dump(mode="json") for entry in entries]}
    rows = [
        (users.day_text(row.at), row.who, row.what, row.target, _value(row.before), _value(row.after))
        for row in entries
    ]
    return print_rows(args, document, ("when", "who", "what", "target", "before", "after"), rows)


def _verify(args: argparse.Namespace, folder: "ServiceFolder") -> int:
    from edge_server.storage import audit_log

    damage = audit_log.verify(folder.audit)
    if damage is not None:
        raise ConfigError(
            f"line {damage.line}: {damage.why}",
            place=folder.audit,
            remedy="compare it with a copy or a backup",
        )
    count, last = audit_log.length_and_digest(folder.audit)
    line = f"{folder.audit}: {count} entries, each follows from the one before; the last digest is {last}"
    return print_result(args, {"entries": count, "digest": last}, line)


def _is_asked(args: argparse.Namespace, entry: "AuditEntry") -> bool:
    if entry.at < args.since or args.who.lower() not in entry.who.lower():
        return False
    return args.what.lower() in f"{entry.what} {entry.target}".lower()


def _value(value: object) -> str:
    return "-" if value is None else json.dumps(value, ensure_ascii=False)
