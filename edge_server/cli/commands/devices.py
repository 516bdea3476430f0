"""`edge-server devices`: list the devices of a run."""

import argparse
from pathlib import Path

from edge_client.cli.output import Subparsers, add_verb, print_json, print_table

EXAMPLES = """\
examples:
  edge-server devices runs/demo
  edge-server devices runs/demo --format json
  edge-server devices runs/demo --why pi-kitchen     its rounds: selected or not, why, and the result

`down` and `up` are bytes over the device's own link, broadcasts included. The command reads the run folder,
also during the run. The table has the reasons of refusals; a device that is refused too often is excluded
until the round in the table (see [firewall]).
"""


def register(subparsers: Subparsers) -> None:
    """Add the verb."""
    parser = add_verb(
        subparsers, "devices", help="show each device's updates and refusals", examples=EXAMPLES
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    parser.add_argument("--why", metavar="DEVICE", help="show this device's rounds with the reasons")
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    """Print one line per device, or per planning of one device."""
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
            device.device,
            str(device.rounds),
            bytes_text(device.downlink_bytes),
            bytes_text(device.uplink_bytes),
            ", ".join(f"{reason} {count}" for reason, count in device.refused.items()) or "-",
            "-" if device.quarantined_until is None else f"until round {device.quarantined_until}",
        )
        for device in standings
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
