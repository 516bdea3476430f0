"""`edge-server devices` without a run: the devices of the inventory."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from edge_client.cli.output import print_json, print_table
from edge_client.system.plain_text import say
from edge_server.cli.commands.fleet.inventory_options import opened
from schemas.counted import counted

if TYPE_CHECKING:
    from edge_server.storage.inventory.listing import ListedDevice

COLUMNS = (
    *("device", "seen", "enrolled", "certificate", "client", "torch", "onnxruntime", "model", "labels"),
    "note",
)
MOST_LETTERS = 40


def list_devices(args: argparse.Namespace) -> int:
    if args.format == "table":
        _print_devices(_listed(args), time.time())
        _note_if_stale(args)
    else:
        _write_devices(args)
    return 0


def _listed(args: argparse.Namespace) -> "list[ListedDevice]":
    from edge_server.storage.inventory.listing import list_inventory
    from edge_server.storage.service_folder import open_service_folder
    from schemas.selectors import parse_where

    where, folder = parse_where(args.where or ""), open_service_folder(args.service)
    return list_inventory(folder.inventory, where, federation=args.federation, removed=args.removed)


def _note_if_stale(args: argparse.Namespace) -> None:
    from edge_server.storage.service_folder import open_service_folder

    folder = open_service_folder(args.service)
    if not folder.is_served():
        say(f"edge-server: no service runs in {folder.path}: this is what the last one knew", file=sys.stderr)


def _write_devices(args: argparse.Namespace) -> None:
    from edge_server.storage.inventory.export import csv_text, document
    from schemas.labels import parse_where

    where = parse_where(args.where or "")
    with opened(args) as service:
        devices = service.inventory.devices(where, federation=args.federation, removed=args.removed)
    if args.format == "json":
        print_json([document(device) for device in devices])
    else:
        sys.stdout.write(csv_text(devices))


def _print_devices(devices: "Sequence[ListedDevice]", now: float) -> None:
    several = len({device.federation for device in devices}) > 1
    rows = [(*((device.federation,) if several else ()), *_line(device, now)) for device in devices]
    print_table((*(("federation",) if several else ()), *COLUMNS), rows)
    alive = sum(device.alive for device in devices)
    say(f"\n{counted(len(devices), 'device')}, {alive} connected")
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
        _seen(device, now),
        _date(device.enrolled_at),
        _certificate(device, now),
        _plain(versions.get("edge-federation", "")),
        _plain(versions.get("torch", "")),
        _plain(versions.get("onnxruntime", "")),
        _plain(device.model),
        ",".join(f"{key}={value}" for key, value in sorted(device.labels.items())) or "-",
        _plain(device.note),
    )


def _seen(device: "ListedDevice", now: float) -> str:
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
    return (shown[: MOST_LETTERS - 1] + "…" if len(shown) > MOST_LETTERS else shown) or "-"
