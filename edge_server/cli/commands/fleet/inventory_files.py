"""`edge-server inventory import` and `export`."""

import argparse
import json
import sys
from pathlib import Path

from edge_client.cli.output import Subparsers, print_json
from edge_client.system.plain_text import say
from edge_server.cli.commands.fleet.inventory_options import add_inventory_verb, add_where_option, opened
from schemas.errors import ConfigError


# --- import ---
def add_import(verbs: Subparsers) -> None:
    about = "take labels and notes from a fleet file, CSV or JSON"
    parser = add_inventory_verb(verbs, "import", help=about, example="import fleet.csv")
    parser.add_argument("file", type=Path, metavar="FILE", help="as for `edge-server enroll --from`")
    parser.set_defaults(execute=import_file)


def import_file(args: argparse.Namespace) -> int:
    """Take the rows of a file, all or none; devices that are not in the file stay as they are."""
    from edge_server.config.units import counted_text
    from edge_server.storage.inventory.fleet_file import read_fleet_file

    rows = read_fleet_file(args.file)
    with opened(args) as service:
        known = service.inventory.federations()
        usual = args.federation or (known[0] if len(known) == 1 else "federation")
        changes = service.inventory.take_rows(rows, usual)
        for change in changes:
            service.record("import", change, change.before, change.after)
    new = sum(change.before is None for change in changes)
    if args.format == "json":
        print_json({"rows": len(rows), "new": new, "changed": len(changes) - new})
        return 0
    say(f"{counted_text(len(rows), 'device')} read: {new} new, {len(changes) - new} changed")
    return 0


# --- export ---
def add_export(verbs: Subparsers) -> None:
    about = "write the inventory as CSV or JSON, by the file's name"
    parser = add_inventory_verb(verbs, "export", help=about, example="export fleet.csv --where site=barn")
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="fleet.csv or fleet.json; `-` is CSV to stdout"
    )
    add_where_option(parser, "only devices that match")
    parser.add_argument("--removed", action="store_true", help="also the devices that were removed")
    parser.set_defaults(execute=export)


def export(args: argparse.Namespace) -> int:
    """Write the devices so that `import` reads them again."""
    from edge_client.security.identity.private_files import write_private
    from edge_server.config.units import counted_text
    from edge_server.storage.inventory.export import csv_text, document
    from schemas.labels import parse_where

    if str(args.file) != "-" and args.file.suffix.lower() not in (".csv", ".json"):
        raise ConfigError(f"export {args.file}: end the file's name with .csv or .json")
    with opened(args) as service:
        where = parse_where(args.where or "")
        devices = service.inventory.devices(where, federation=args.federation, removed=args.removed)
    if args.file.suffix.lower() == ".json":
        text = json.dumps([document(device) for device in devices], indent=2) + "\n"
    else:
        text = csv_text(devices)
    if str(args.file) == "-":
        sys.stdout.write(text)
        return 0
    write_private(args.file, text.encode())
    if args.format == "json":
        print_json({"file": str(args.file), "devices": len(devices)})
    else:
        say(f"{args.file}: {counted_text(len(devices), 'device')}")
    return 0
