"""What a report says, before it is HTML or Markdown: sections of facts, tables, curves, texts and commands.

Every text is as it came: whoever renders it escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge_server.config.units import UNKNOWN
from edge_server.observability.report.charts import Chart
from edge_server.observability.report.html_table import Cell

SHOWN_ROWS = 40
"""Rows of a table that are read at once; the others are folded away, in Markdown left to the run's files."""


@dataclass(frozen=True)
class Paragraph:
    """Plain words."""

    text: str


@dataclass(frozen=True)
class FactList:
    """Names and values, the way to read a few of them."""

    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells; `rest` says where those are that Markdown leaves out."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rest: str = "summary.json"


@dataclass(frozen=True)
class Curves:
    """Charts beside each other."""

    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Code:
    """Lines to be copied, or a file; a long one is `folded` under its title."""

    text: str
    folded: str = ""


@dataclass(frozen=True)
class Card:
    """Text that is Markdown already."""

    markdown: str


@dataclass(frozen=True, eq=False)
class Picture:
    """A PNG that lies beside the report."""

    name: str
    data: bytes


Block = Picture | Paragraph | FactList | Table | Curves | Code | Card


@dataclass(frozen=True)
class Section:
    """A title and what stands under it."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report; `outcome` is its one word, good or not."""

    title: str
    name: str
    outcome: str
    detail: str
    good: bool
    facts: FactList
    sections: tuple[Section, ...]


def without_empty(made: Table) -> Table:
    """The table without the columns that say nothing in any row."""
    nothing = ("", UNKNOWN)
    kept = [
        index
        for index in range(len(made.columns))
        if any(row[index].text not in nothing for row in made.rows) or not made.rows
    ]
    rows = tuple(tuple(row[index] for index in kept) for row in made.rows)
    return replace(made, columns=tuple(made.columns[index] for index in kept), rows=rows)


def words(text: str) -> Cell:
    """A cell that is read from the left."""
    return Cell(text, words=True)


def numbers(*texts: str) -> tuple[Cell, ...]:
    """Cells that end at the right."""
    return tuple(Cell(text) for text in texts)


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, rest: str = "summary.json"
) -> Table:
    """A table from any sequences."""
    return Table(caption, tuple(columns), tuple(tuple(row) for row in rows), rest)


__all__ = [
    "SHOWN_ROWS",
    "Block",
    "Card",
    "Cell",
    "Code",
    "Curves",
    "Document",
    "FactList",
    "Paragraph",
    "Picture",
    "Section",
    "Table",
    "numbers",
    "table",
    "without_empty",
    "words",
]
