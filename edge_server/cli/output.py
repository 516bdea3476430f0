"""Results of the server's verbs, for people or for programs."""

import argparse
from collections.abc import Sequence
from typing import Any

from edge_client.cli.output import print_json, print_table
from edge_client.system.plain_text import say


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
