"""`edge-server report`: a run, or several runs for comparison, as one page."""

import argparse
from pathlib import Path

from edge_client.cli.options import Option, Subparsers, add_verb
from edge_client.system.plain_text import print_json, say
from edge_server.cli.commands.fleet.inventory_options import where_option

EXAMPLES = """\
examples:
  edge-server report runs/demo                            report.html and report.md in runs/demo
  edge-server report runs/demo --format markdown --out notes/demo.md
  edge-server report runs/demo --format json              the same figures for programs
  edge-server report runs/fedavg runs/attending           compare.html and compare.md, in this folder
  edge-server report runs/* --format html --out compare.html
  edge-server report runs/demo --where site=barn --out barn.html

The page is one self-contained file. `edge-server run` and `simulate` write both files at the end of a run.
To run and compare algorithms: edge-server compare.
"""


OPTIONS = (
    Option("runs", Path, "run folder", metavar="RUN", nargs="+"),
    Option("--out", Path, "write this file instead; with json, instead of printing", metavar="FILE"),
    where_option("tiers and devices in the report of one run: only devices that match"),
)


def register(verbs: Subparsers) -> None:
    add_verb(
        verbs,
        "report",
        execute,
        OPTIONS,
        help="write a run's report, or compare runs",
        examples=EXAMPLES,
        formats=("table", "html", "markdown", "json"),
    )


def execute(args: argparse.Namespace) -> int:
    from edge_server.observability.report.report import publish_report
    from schemas.selectors import parse_where

    form = None if args.format == "table" else args.format
    text, paths = publish_report(args.runs, form=form, out=args.out, where=parse_where(args.where or ""))
    if text is not None:
        print_json(text)
    for path in paths:
        say(path)
    return 0
