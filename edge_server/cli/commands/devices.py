"""`edge-server devices`: list the devices of the inventory, or of a run."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import Option, Subparsers, add_verb
from edge_client.system.plain_text import print_json, print_rows, print_table, say
from edge_server.cli.commands.fleet.inventory_options import open_inventory, where_option
from edge_server.cli.commands.fleet.serve import SERVICE, service_folder
from schemas.errors import ConfigError, format_count

if TYPE_CHECKING:
    from edge_server.observability.device_totals import DeviceTotals
    from edge_server.storage.inventory.listing import ListedDevice
    from schemas.selectors import Where

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


OPTIONS = (
    Option("run", Path, "run folder (default: the inventory)", metavar="RUN", nargs="?"),
    Option("--why", help="with RUN: show this device's rounds with the reasons", metavar="DEVICE"),
    where_option("only devices that match"),
    Option("--federation", help="only the devices of this federation", metavar="NAME"),
    Option("--removed", bool, "also devices that were removed"),
    SERVICE,
)


def register(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "devices",
        execute,
        OPTIONS,
        help="list the devices of the inventory, or of a run",
        examples=EXAMPLES,
        formats=("table", "json", "csv"),
    )


def execute(args: argparse.Namespace) -> int:
    if args.run is None and args.why is not None:
        raise ConfigError(
            "of which run? Name its folder",
            key=f"--why {args.why}",
            remedy="edge-server devices RUN --why DEVICE",
        )
    if args.run is None:
        return list_devices(args)
    _check_words(args)
    if args.why is not None:
        return _why(args)
    from edge_server.config.units import bytes_text
    from edge_server.observability.device_totals import read_device_totals, read_lineage
    from schemas.selectors import EVERY, parse_where

    where, standings = parse_where(args.where or ""), read_device_totals(args.run)
    lineage = read_lineage(args.run, args.service)
    if where != EVERY:
        standings = [device for device in standings if lineage.matches(device, where)]
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
        raise ConfigError(
            "devices RUN: --federation and --removed are for the inventory", remedy="leave RUN out"
        )
    if args.format == "csv":
        raise ConfigError("devices RUN: csv is for the inventory; --format json has a run's figures")


def _why(args: argparse.Namespace) -> int:
    from edge_server.observability.device_totals import read_lineage, read_whole_history

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


COLUMNS = (
    *("device", "seen", "enrolled", "certificate", "client", "torch", "onnxruntime", "model", "labels"),
    "note",
)
MAX_LETTERS = 40


def list_devices(args: argparse.Namespace) -> int:
    """Print the devices of the inventory that `--where` chooses."""
    from schemas.selectors import parse_where

    where = parse_where(args.where or "")
    if args.format != "table":
        return _write_devices(args, where)
    from edge_server.storage.inventory.listing import list_inventory

    folder = service_folder(args)
    found = list_inventory(folder.inventory, where, federation=args.federation, removed=args.removed)
    if not found and args.federation is not None:
        _check_federation(args)
    _print_devices(found, time.time())
    if not folder.is_served():
        say(f"edge-server: no service runs in {folder.path}: this is what the last one knew", file=sys.stderr)
    return 0


def _write_devices(args: argparse.Namespace, where: "Where") -> int:
    from edge_server.storage.inventory.fleet_file import csv_text, document

    with open_inventory(args) as service:
        devices = service.inventory.devices(where, federation=args.federation, removed=args.removed)
    if not devices and args.federation is not None:
        _check_federation(args)
    if args.format == "json":
        print_json([document(device) for device in devices])
    else:
        sys.stdout.write(csv_text(devices))
    return 0


def _check_federation(args: argparse.Namespace) -> None:
    """Raise `ConfigError` for a federation that neither the inventory nor service.toml has."""
    from edge_server.fleet.settings.service import load_service_settings

    with open_inventory(args) as service:
        if args.federation not in service.inventory.federations():
            load_service_settings(service.folder.settings).federation(args.federation)


def _print_devices(devices: "Sequence[ListedDevice]", now: float) -> None:
    several = len({device.federation for device in devices}) > 1
    rows = [(*((device.federation,) if several else ()), *_line(device, now)) for device in devices]
    print_table((*(("federation",) if several else ()), *COLUMNS), rows)
    alive = sum(device.alive for device in devices)
    say(f"\n{format_count(len(devices), 'device')}, {alive} connected")
    print_broken_files({device.device: device.skipped for device in devices if device.skipped})


def print_broken_files(skipped: Mapping[str, object]) -> None:
    """A line for each device that has left out files, by its name."""
    if not skipped:
        return
    # Imported here, as the list of a fleet without any is to come at once.
    from edge_server.config.units import clean
    from schemas.values import SkippedFiles

    for device, which in skipped.items():
        say(f"{device}: {clean(SkippedFiles.model_validate(which).in_words())}")


def _line(device: "ListedDevice", now: float) -> tuple[str, ...]:
    versions = device.versions
    return (
        device.device + (f" (replaces {device.replaces})" if device.replaces else ""),
        _describe_seen(device, now),
        _date(device.enrolled_at),
        _certificate(device, now),
        _plain(versions.get("edge-federation", "")),
        _plain(versions.get("torch", "")),
        _plain(versions.get("onnxruntime", "")),
        _plain(device.model),
        ",".join(f"{key}={value}" for key, value in sorted(device.labels.items())) or "-",
        _plain(device.note),
    )


def _describe_seen(device: "ListedDevice", now: float) -> str:
    if device.removed_at is not None:
        return f"removed {_date(device.removed_at)}{', connected' if device.alive else ''}"
    if device.alive:
        return "now"
    return "never" if device.seen_at is None else f"{_ago(now - device.seen_at)} ago"


def _ago(seconds: float) -> str:
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= length:
            return f"{int(seconds // length)} {unit}"
    return f"{max(0, int(seconds))} s"


def _certificate(device: "ListedDevice", now: float) -> str:
    if device.revoked_at is not None:
        return "revoked"
    until = device.certificate_until
    return f"expired {_date(until)}" if until is not None and until < now else _date(until)


def _date(at: float | None) -> str:
    return "-" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}"


def _plain(text: str) -> str:
    """A text of a device or operator, short and without control characters."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in text)
    return (shown[: MAX_LETTERS - 1] + "…" if len(shown) > MAX_LETTERS else shown) or "-"
