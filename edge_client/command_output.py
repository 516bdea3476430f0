"""How verbs print: plain text tables for people, one JSON document for programs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from edge_client.trust import TrustedKey

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_verb(
    subparsers: Subparsers,
    name: str,
    *,
    help: str,
    examples: str,
    formats: Sequence[str] = ("table", "json"),
) -> argparse.ArgumentParser:
    """Add a verb with `--format`; `examples` stand below its options in `--help`."""
    parser = subparsers.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--format",
        choices=formats,
        default="table",
        help="for people or for programs (default: table)",
    )
    return parser


def add_trust_option(parser: argparse.ArgumentParser) -> None:
    """Add `--trust`."""
    parser.add_argument(
        "--trust",
        type=Path,
        metavar="KEY.pub",
        help="refuse a model that this key of the server has not signed (its signing.pub)",
    )


def read_trust_option(args: argparse.Namespace) -> TrustedKey | None:
    """The key that `--trust` names, if any."""
    from edge_client.trust import read_trusted_key

    return None if args.trust is None else read_trusted_key(args.trust)


def positive_int(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return value


def positive_float(text: str) -> float:
    """An argument that is a finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above 0")
    return value


def print_json(document: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(document, indent=2))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns under their names."""
    lines = [columns, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())
