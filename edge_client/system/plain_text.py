"""What verbs print: text in which others cannot move the cursor or turn the direction; tables, and JSON."""

import argparse
import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, TextIO

# Unicode categories that end lines, move the cursor or change the writing direction.
CONTROL = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def plain(text: str, keep: str = "") -> str:
    """The text with its control characters escaped, but those in `keep`: an escape is `\\x1b`."""
    if text.isascii() and text.isprintable():
        return text
    # Imported here: only text from elsewhere needs it.
    from unicodedata import category

    return "".join(
        _escape_character(letter) if category(letter) in CONTROL and letter not in keep else letter
        for letter in text
    )


def say(
    *words: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """Print as `print` does, with all control characters but line ends and tabs escaped."""
    print(*(plain(str(word), keep="\n\t") for word in words), sep=sep, end=end, file=file, flush=flush)


def _escape_character(character: str) -> str:
    # A codec would be read from disk at its first use, which fails where no descriptor is free.
    return ascii(character)[1:-1]


def print_json(document: Any) -> None:
    say(json.dumps(document, indent=2))


NARROWEST = 12  # Characters to which a column is wrapped at most


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print left-aligned columns with headers; in a terminal the widest are wrapped, so that lines fit."""
    lines = [columns, *([plain(cell) for cell in row] for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    if sys.stdout.isatty():
        widths = _fitting(widths, shutil.get_terminal_size().columns)
    for line in lines:
        cells = [
            textwrap.wrap(cell, width) if len(cell) > width else [cell]
            for cell, width in zip(line, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            say("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())


def _fitting(widths: Sequence[int], most: int) -> list[int]:
    """The widths of columns of which the widest are cut, so that they and two spaces each fit."""
    room, fitting = most - 2 * (len(widths) - 1), list(widths)
    while sum(fitting) > room and (widest := max(fitting)) > NARROWEST:
        others = sum(width for width in fitting if width < widest)
        next_wide = max((width for width in fitting if width < widest), default=NARROWEST)
        share = (room - others) // fitting.count(widest)
        cut = max(share, next_wide, NARROWEST)
        fitting = [cut if width == widest else width for width in fitting]
    return fitting


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
