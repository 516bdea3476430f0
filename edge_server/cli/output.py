"""What the server's verbs share: verbs of a verb, and results for people or for programs."""

import argparse
from collections.abc import Sequence
from typing import Any

from edge_client.cli.output import Subparsers, print_help, print_json, print_table
from edge_client.system.plain_text import say


def add_verb_group(
    subparsers: Subparsers, name: str, *, help: str, description: str, examples: str
) -> Subparsers:
    """Add a verb that has verbs of its own; returns those."""
    parser = subparsers.add_parser(
        name,
        help=help,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(execute=print_help(parser))
    return parser.add_subparsers(dest=f"{name.replace('-', '_')}_verb", metavar="VERB")


def print_result(args: argparse.Namespace, document: Any, *lines: str) -> int:
    """Print the document as JSON, or else the lines; returns the exit code 0."""
    if args.format == "json":
        print_json(document)
    else:
        say(*lines, sep="\n")
    return 0


def print_rows(
    args: argparse.Namespace, document: Any, columns: Sequence[str], rows: Sequence[Sequence[str]]
) -> int:
    """Print the document as JSON, or else the rows as a table; returns the exit code 0."""
    if args.format == "json":
        print_json(document)
    else:
        print_table(columns, rows)
    return 0
