"""`edge-server devices`: list the devices of the inventory, or of a run."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.output import Subparsers, add_verb, print_json, print_table
from edge_server.cli.commands.fleet.device_list import list_devices, print_broken_files
from edge_server.cli.commands.fleet.inventory_options import add_where_option
from edge_server.cli.commands.fleet.serve import add_service_option
from edge_server.cli.output import print_rows
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.observability.device_totals import DeviceTotals

EXAMPLES = """\
examples:
  edge-server devices                                 the inventory: seen, certificate, versions, labels, note
  edge-server devices --where 'site in (barn,field),role=camera'
  edge-server devices --format csv > fleet.csv        `edge-server inventory import` reads it again
  edge-server devices runs/demo                       a run's devices: rounds, bytes, refusals
  edge-server devices runs/demo --format json
  edge-server devices runs/demo --why pi-kitchen      its rounds, and those of boards whose place it took

The inventory is that of the service folder (`edge-server serve`); `edge-server inventory` changes it.
`down` and `up` are bytes over the device's own link, broadcasts included. The command reads the run folder,
also during the run. The table has the reasons of refusals; a device that is refused too often is excluded
until the round in the table (see [firewall]). Below it are the broken files that devices have left out. A
board that took the place of a dead one (`inventory replace`) has the history of both.
"""


def register(subparsers: Subparsers) -> None:
    parser = add_verb(
        subparsers,
        "devices",
        help="list the devices of the inventory, or of a run",
        examples=EXAMPLES,
        formats=("table", "json", "csv"),
    )
    parser.add_argument(
        "run", type=Path, nargs="?", metavar="RUN", help="run folder (default: the inventory)"
    )
    parser.add_argument(
        "--why", metavar="DEVICE", help="with RUN: show this device's rounds with the reasons"
    )
    add_where_option(parser, "only devices that match")
    parser.add_argument("--federation", metavar="NAME", help="only the devices of this federation")
    parser.add_argument("--removed", action="store_true", help="also devices that were removed")
    add_service_option(parser)
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    if args.run is None and args.why is not None:
        raise ConfigError(
            f"--why {args.why}: of which run? Name its folder: edge-server devices RUN --why DEVICE"
        )
    if args.run is None:
        return list_devices(args)
    _check_words(args)
    if args.why is not None:
        return _why(args)
    from edge_server.config.units import bytes_text
    from edge_server.observability.device_totals import read_device_totals
    from edge_server.observability.selection_history import read_lineage
    from schemas.labels import EVERY, parse_where

    where, standings = parse_where(args.where or ""), read_device_totals(args.run)
    lineage = read_lineage(args.run, args.service)
    if where != EVERY:
        standings = [device for device in standings if lineage.matches(device.device, where)]
    before = {device.device: lineage.predecessors(device.device) for device in standings}
    if args.format == "json":
        print_json([_document(device, before[device.device]) for device in standings])
        return 0
    rows = [
        (
            device.device,
            str(device.rounds),
            bytes_text(device.downlink_bytes),
            bytes_text(device.uplink_bytes),
            ", ".join(f"{reason} {count}" for reason, count in device.refused.items()) or "-",
            "-" if device.quarantined_until is None else f"until round {device.quarantined_until}",
            *((", ".join(before[device.device]) or "-",) if any(before.values()) else ()),
        )
        for device in standings
    ]
    last = ("replaces",) if any(before.values()) else ()
    print_table(("device", "rounds", "down", "up", "refused", "quarantine", *last), rows)
    print_broken_files({device.device: device.skipped for device in standings if device.skipped})
    return 0


def _document(device: "DeviceTotals", replaces: list[str]) -> dict[str, Any]:
    document = device.model_dump(mode="json")
    return {**document, "replaces": replaces} if replaces else document


def _check_words(args: argparse.Namespace) -> None:
    if args.federation is not None or args.removed:
        raise ConfigError("devices RUN: --federation and --removed are for the inventory: leave RUN out")
    if args.format == "csv":
        raise ConfigError("devices RUN: csv is for the inventory; --format json has a run's figures")


def _why(args: argparse.Namespace) -> int:
    from edge_server.observability.selection_history import read_lineage, read_whole_history

    before = read_lineage(args.run, args.service).predecessors(args.why)
    entries = read_whole_history(args.run, args.why, before)
    rounds = [
        {**row.model_dump(mode="json"), **({"device": name} if before else {})} for name, row in entries
    ]
    document = {"device": args.why, **({"replaces": before} if before else {}), "rounds": rounds}
    lines = [
        (
            str(row.round),
            *((name,) if before else ()),
            "yes" if row.chosen else "no",
            row.because or "-",
            f"{row.outcome}: {row.reason}" if row.reason else row.outcome,
            "-" if row.weight is None else f"{row.weight:.3g}",
        )
        for name, row in entries
    ]
    columns = ("round", *(("device",) if before else ()), "chosen", "why", "outcome", "weight")
    return print_rows(args, document, columns, lines)
