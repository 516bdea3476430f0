"""`edge-server report`: a run as one page."""

from __future__ import annotations

import argparse
from pathlib import Path

from edge_client.command_output import Subparsers, add_verb, print_json

EXAMPLES = """\
examples:
  edge-server report runs/demo
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(subparsers, "report", help="write a run's report.html", examples=EXAMPLES)
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    from edge_server.report.report import write_report

    path = write_report(args.run)
    print_json({"report": str(path)}) if args.format == "json" else print(path)
    return 0
