"""`edge-server schemas`: write the protocol as JSON Schemas."""

import argparse
import json
from pathlib import Path

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_json, say

HELP = "write the protocol as JSON Schemas"
EXAMPLES = """\
examples:
  edge-server schemas --out protocol       one file per message
  edge-server schemas --format json        all of them on stdout
"""


OPTIONS = (Option("--out", Path, "(default: %(default)s)", Path("protocol"), "DIR"),)


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
