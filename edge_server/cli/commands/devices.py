"""`edge-server devices`: what became of each device of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from edge_client.cli.output import Subparsers, add_verb, print_json, print_table

EXAMPLES = """\
examples:
  edge-server devices runs/demo
  edge-server devices runs/demo --format json
  edge-server devices runs/demo --why pi-kitchen     its rounds: chosen or not, why, and what came of it

`down` and `up` are what went over the device's own link, broadcasts included. Reads the run folder,
also while the run goes on. A device is refused for the reason that stands there, and one that is
refused too often is left out of planning until the round that is named (see [firewall]).
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "devices", help="show what was counted and refused of each device", examples=EXAMPLES
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.add_argument(
        "--why", metavar="DEVICE", help="show this device's rounds, and why each was as it was"
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print a line per device, or per planning of one."""
    if args.why is not None:
        return _why(args)
    from edge_server.config.units import bytes_text
    from edge_server.observability.device_totals import read_device_totals

    standings = read_device_totals(args.run)
    if args.format == "json":
        print_json([standing.model_dump(mode="json") for standing in standings])
        return 0
    rows = [
        (
            one.device,
            str(one.rounds),
            bytes_text(one.downlink_bytes),
            bytes_text(one.uplink_bytes),
            ", ".join(f"{reason} {count}" for reason, count in one.refused.items()) or "-",
            "-" if one.quarantined_until is None else f"until round {one.quarantined_until}",
        )
        for one in standings
    ]
    print_table(("device", "rounds", "down", "up", "refused", "quarantine"), rows)
    return 0


def _why(args: argparse.Namespace) -> int:
    from edge_server.observability.selection_history import read_selection_history

    rows = read_selection_history(args.run, args.why)
    if args.format == "json":
        print_json({"device": args.why, "rounds": [row.model_dump(mode="json") for row in rows]})
        return 0
    lines = [
        (
            str(row.round),
            "yes" if row.chosen else "no",
            row.because or "-",
            f"{row.outcome}: {row.reason}" if row.reason else row.outcome,
            "-" if row.weight is None else f"{row.weight:.3g}",
        )
        for row in rows
    ]
    print_table(("round", "chosen", "why", "outcome", "weight"), lines)
    return 0
