"""`edge-server devices`: what became of each device of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from edge_client.command_output import Subparsers, add_verb, print_json, print_table

EXAMPLES = """\
examples:
  edge-server devices runs/demo
  edge-server devices runs/demo --format json

Reads the run folder, also while the run goes on. A device is refused for the reason that stands there, and
one that is refused too often is left out of planning until the round that is named (see [firewall]).
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "devices", help="show what was counted and refused of each device", examples=EXAMPLES
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print a line per device."""
    from edge_server.device_standings import read_standings

    standings = read_standings(args.run)
    if args.format == "json":
        print_json([standing.model_dump(mode="json") for standing in standings])
        return 0
    rows = [
        (
            one.device,
            str(one.rounds),
            ", ".join(f"{reason} {count}" for reason, count in one.refused.items()) or "-",
            "-" if one.quarantined_until is None else f"until round {one.quarantined_until}",
        )
        for one in standings
    ]
    print_table(("device", "rounds", "refused", "quarantine"), rows)
    return 0
