"""`edge-server schemas`: write the protocol as JSON Schemas."""

import argparse
import json
from pathlib import Path

from edge_client.cli.output import Subparsers, add_verb, print_json
from edge_client.system.plain_text import say

EXAMPLES = """\
examples:
  edge-server schemas --out protocol       one file per message
  edge-server schemas --format json        all of them on stdout
"""


def register(subparsers: Subparsers) -> None:
    parser = add_verb(subparsers, "schemas", help="write the protocol as JSON Schemas", examples=EXAMPLES)
    parser.add_argument(
        "--out", type=Path, default=Path("protocol"), metavar="DIR", help="(default: %(default)s)"
    )
    parser.set_defaults(execute=execute)


def execute(args: argparse.Namespace) -> int:
    from edge_client.storage.atomic_files import usable_folder
    from schemas.json_schema import json_schemas

    found = json_schemas()
    if args.format == "json":
        print_json(found)
        return 0
    usable_folder(args.out, option="--out")
    for name, schema in found.items():
        (args.out / f"{name}.schema.json").write_text(json.dumps(schema, indent=2) + "\n")
    say(f"{len(found)} schemas in {args.out}")
    return 0
