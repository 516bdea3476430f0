"""`edge-server inventory`: label, note, remove and replace devices; import and export them."""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.cli.options import Option, Subparsers, add_verbs
from edge_client.system.plain_text import print_json, print_result, say
from edge_server.cli.commands.fleet import inventory_options
from edge_server.cli.commands.fleet.inventory_removal import REVOCATION, remove_devices, replace
from edge_server.cli.commands.fleet.serve import SERVICE
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.storage.inventory.records import InventoryDevice


EXAMPLES = """\
examples:
  edge-server devices --where site=barn                       list devices
  edge-server inventory label pi-1 site=barn role=camera      set labels of one device
  edge-server inventory label --where site=barn gpu-          remove a label of many
  edge-server inventory note pi-1 'behind the door, needs the long ladder'
  edge-server inventory replace pi-1 pi-9                     a new board takes the place of a dead one
  edge-server inventory remove pi-3
  edge-server inventory export fleet.csv && edge-server inventory import fleet.csv

The inventory is a file in the folder of `edge-server serve`; these commands change it whether or not the
service runs, and each change is in the audit log. Labels that the operator sets win over those that a device
states (`edge-client run --label`).
"""


def register(subparsers: Subparsers) -> None:
    verbs = add_verbs(
        subparsers,
        "inventory",
        SERVICE,
        Option("--federation", help="federation of the devices, if there are several", metavar="NAME"),
        help="labels, notes, removal and replacement of devices; import and export",
        description="The devices of a fleet, as the operator keeps them.",
        examples=EXAMPLES,
    )
    where = inventory_options.where_option
    one = Option("device", help="one device (or --where)", metavar="DEVICE", nargs="?")
    changes = Option("changes", help="set a label, or remove it", metavar="KEY=VALUE|KEY-", nargs="*")
    about, example = "set and remove labels", "label pi-1 site=barn role-"
    verbs.add("label", label, one, changes, where("all devices that match"), help=about, example=example)
    device = Option("device", metavar="DEVICE")
    text = Option("text", help="one line; an empty text removes the note", metavar="TEXT")
    about, example = "write a note on a device", "note pi-1 'behind the door'"
    verbs.add("note", note, device, text, help=about, example=example)
    about = "take devices out of the inventory, and revoke their certificates"
    removed = (one, where("all devices that match"), *REVOCATION)
    verbs.add("remove", remove_devices, *removed, help=about, example="remove pi-3")
    old = Option("old", help="the dead board", metavar="OLD")
    new = Option("new", help="the new board: it gets OLD's labels and note", metavar="NEW")
    about, example = "let a new board take the place of a dead one", "replace pi-1 pi-9"
    verbs.add("replace", replace, old, new, *REVOCATION, help=about, example=example)
    file = Option("file", Path, "as for `edge-server enroll --from`", metavar="FILE")
    about = "take labels and notes from a fleet file, CSV or JSON"
    verbs.add("import", import_file, file, help=about, example="import fleet.csv")
    written = (
        Option("file", Path, "fleet.csv or fleet.json; `-` is CSV to stdout", metavar="FILE"),
        where("only devices that match"),
        Option("--removed", bool, "also the devices that were removed"),
    )
    about = "write the inventory as CSV or JSON, by the file's name"
    verbs.add("export", export, *written, help=about, example="export fleet.csv --where site=barn")


def label(args: argparse.Namespace) -> int:
    from edge_server.config.units import counted_text

    device, words = _device_and_words(args)
    changes = dict(map(_change, words))
    done: list[tuple[InventoryDevice, Mapping[str, str], Mapping[str, str]]] = []
    with inventory_options.open_inventory(args) as service:
        for known in service.chosen(args, device):
            before, after = service.inventory.set_labels(known.federation, known.device, changes)
            if before != after:
                service.record("label", known, {"labels": before}, {"labels": after})
            done.append((known, before, after))
    if args.format == "json":
        print_json(
            [
                {"federation": known.federation, "device": known.device, "before": before, "after": after}
                for known, before, after in done
            ]
        )
        return 0
    names = [known.device for known, *_ in done]
    say(f"{counted_text(len(names), 'device')}: {' '.join(words)}: {inventory_options.names_text(names)}")
    for key in sorted({key for known, *_ in done for key in changes if key in known.stated_labels}):
        if changes[key] is None:
            say(f"'{key}' stays where a device states it itself: remove it from its client.toml")
    return 0


def _device_and_words(args: argparse.Namespace) -> tuple[str | None, list[str]]:
    """The device, None with `--where`, and the changes."""
    words = [word for word in (args.device, *args.changes) if word is not None]
    device = None if args.where is not None else (words.pop(0) if words else None)
    if device is None and args.where is None:
        raise ConfigError("label: which DEVICE? Or --where SELECTOR for several")
    if device is not None and "=" in device:
        raise ConfigError(f"label: which DEVICE? '{device}' is a label; or --where SELECTOR for several")
    if not words:
        raise ConfigError("label: which labels? site=barn sets one, site- removes it")
    return device, words


def _change(word: str) -> tuple[str, str | None]:
    from schemas.selectors import checked_key, parse_label

    if word.endswith("-") and "=" not in word:
        return checked_key(word[:-1]), None
    return parse_label(word)


def note(args: argparse.Namespace) -> int:
    with inventory_options.open_inventory(args) as service:
        device = service.inventory.of_name(args.device, args.federation)
        before = service.inventory.set_note(device.federation, device.device, args.text)
        after = service.inventory.of_name(device.device, device.federation).note
        if before != after:
            service.record("note", device, {"note": before}, {"note": after})
    document = {"device": args.device, "before": before, "after": after}
    return print_result(args, document, f"{args.device}: {after or 'no note'}")


def import_file(args: argparse.Namespace) -> int:
    from edge_server.config.units import counted_text
    from edge_server.fleet.settings.service import load_service_settings
    from edge_server.storage.inventory.fleet_file import read_fleet_file

    rows = read_fleet_file(args.file)
    with inventory_options.open_inventory(args) as service:
        settings, known = load_service_settings(service.folder.settings), service.inventory.federations()
        usual = args.federation or (known[0] if len(known) == 1 else "federation")
        if settings.federations and args.federation is None and not all(row.federation for row in rows):
            usual = settings.federation(None).name
        changes = service.inventory.take_rows(rows, usual)
        for change in changes:
            service.record("import", change, change.before, change.after)
    new = sum(change.before is None for change in changes)
    document = {"rows": len(rows), "new": new, "changed": len(changes) - new}
    line = f"{counted_text(len(rows), 'device')} read: {new} new, {len(changes) - new} changed"
    return print_result(args, document, line)


def export(args: argparse.Namespace) -> int:
    from edge_client.security.identity.private_files import write_private
    from edge_client.storage.atomic_files import usable_folder
    from edge_server.config.units import counted_text
    from edge_server.storage.inventory.fleet_file import csv_text, document
    from schemas.selectors import parse_where

    if str(args.file) != "-" and args.file.suffix.lower() not in (".csv", ".json"):
        raise ConfigError(f"export {args.file}", remedy="end the file's name with .csv or .json")
    with inventory_options.open_inventory(args) as service:
        where = parse_where(args.where or "")
        devices = service.inventory.devices(where, federation=args.federation, removed=args.removed)
    if args.file.suffix.lower() == ".json":
        text = json.dumps([document(device) for device in devices], indent=2) + "\n"
    else:
        text = csv_text(devices)
    if str(args.file) == "-":
        sys.stdout.write(text)
        return 0
    usable_folder(args.file.parent, option="the folder")
    write_private(args.file, text.encode())
    line = f"{args.file}: {counted_text(len(devices), 'device')}"
    return print_result(args, {"file": str(args.file), "devices": len(devices)}, line)
