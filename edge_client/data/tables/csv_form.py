"""The form of a CSV file as its first lines tell it: delimiter, decimal sign, and where the table begins."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.counted import format_count

DELIMITERS = {",": "','", ";": "';'", "\t": "a tab", "|": "'|'"}
MAX_HEAD = 20  # most lines of remarks before the names of the columns
THOUSANDS = re.compile(r"[+-]?\d{1,3}([.,]\d{3})+")
WITH_COMMA = re.compile(r"[+-]?\d*,\d+([eE][+-]?\d+)?")

_NUMBER = re.compile(r"\s*[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?\s*")
_WITH_POINT = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_SEPARATOR_LINE = re.compile(r"sep=(.)\s*")  # how files for Excel state what is between values

Cells = Sequence[Sequence[str]]


@dataclass(frozen=True)
class CsvForm:
    """The `head` are rows before the names of the columns."""

    delimiter: str = ","
    decimal: str = "."
    head: int = 0

    def in_words(self) -> str:
        """What is unusual about it; empty if nothing is."""
        between = DELIMITERS.get(self.delimiter, repr(self.delimiter))
        unusual = {
            f"{between} between values": self.delimiter != ",",
            "decimal commas": self.decimal == ",",
            f"{format_count(self.head, 'line')} before the names of its columns": self.head > 0,
        }
        return ", ".join(text for text, is_so in unusual.items() if is_so)


def form_of(lines: Sequence[str], *, delimiter: str = "", decimal: str = "") -> CsvForm:
    """The form of a file that begins with these lines; a stated delimiter or decimal sign counts."""
    separator = _SEPARATOR_LINE.fullmatch(lines[0]) if lines else None
    delimiter = delimiter or (separator[1] if separator else _delimiter(lines))
    rows = split(lines, delimiter)
    head = _header(rows[bool(separator) :]) or (0, 0)
    begin = bool(separator) + head[0]
    return CsvForm(delimiter, decimal or _decimal(rows[begin + 1 :], delimiter), begin)


def split(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """The values of lines that have some."""
    return [row for row in csv.reader(lines, delimiter=delimiter) if any(row)]


def _delimiter(lines: Sequence[str]) -> str:
    """What makes most columns, equally many in header and most rows, and then most numbers; else a comma."""
    best, most = ",", (1, 0)
    for delimiter in DELIMITERS:
        rows = split(lines, delimiter)
        _, width = _header(rows) or (0, 0)
        made = width, sum(bool(_NUMBER.fullmatch(value)) for row in rows for value in row)
        if made > most and width > 1:
            best, most = delimiter, made
    return best


def _header(rows: Cells) -> tuple[int, int] | None:
    """The place of the row that names the columns, and how many it names; None if no row fits most rows.

    The first row does, or has no name for the rows' names; otherwise it is the first one without numbers.
    """
    if not rows:
        return None
    width, count = Counter(map(len, rows)).most_common(1)[0]
    if 2 * count < len(rows):
        return None
    fits = len(rows[0]) == width
    named = (
        place
        for place, row in enumerate(rows[:MAX_HEAD])
        if len(row) == width and not any(map(_NUMBER.fullmatch, row))
    )
    place = 0 if fits else next(named, None)
    if place is None:
        return (0, width - 1) if len(rows[0]) == width - 1 else None
    return place, width


def _decimal(rows: Cells, delimiter: str) -> str:
    """The sign before decimals: a comma if numbers have only commas, and not between thousands."""
    values = [value.strip() for row in rows for value in row]
    commas = [value for value in values if WITH_COMMA.fullmatch(value)]
    if not commas or any(map(_WITH_POINT.fullmatch, values)):
        return "."
    return "." if delimiter == "," and all(map(THOUSANDS.fullmatch, commas)) else ","
