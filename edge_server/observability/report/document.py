"""The content of a report, independent of HTML and Markdown: sections of facts, tables, curves and texts.

No text is escaped here; the renderers escape.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge_server.config.units import UNKNOWN
from edge_server.observability.report.charts import Chart
from edge_server.observability.report.parallel_axes import ParallelAxes

SHOWN_ROWS = 40  # Visible rows of a table; HTML folds the others away, Markdown refers to the run's files


@dataclass(frozen=True)
class Cell:
    """A cell's unescaped text; a number unless `words`, highlighted with `alert`."""

    text: str
    words: bool = False
    alert: bool = False


@dataclass(frozen=True)
class Paragraph:
    text: str


@dataclass(frozen=True)
class FactList:
    rows: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells; `rest` names the file with the rows that Markdown leaves out."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    rest: str = "summary.json"


@dataclass(frozen=True)
class Curves:
    charts: tuple[Chart, ...]


@dataclass(frozen=True)
class Sweep:
    """Settings against a figure; Markdown refers to the table of the same results."""

    charts: tuple[ParallelAxes, ...]


@dataclass(frozen=True)
class Code:
    """Commands or a file; a long text is folded under the title `folded`."""

    text: str
    folded: str = ""


@dataclass(frozen=True)
class Card:
    markdown: str


@dataclass(frozen=True, eq=False)
class Picture:
    """A PNG that is stored next to the report."""

    name: str
    data: bytes


Block = Picture | Paragraph | FactList | Table | Curves | Sweep | Code | Card


@dataclass(frozen=True)
class Section:
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Document:
    """A whole report; `outcome` is a word for the run's end, and `good` whether it is a success."""

    title: str
    name: str
    outcome: str
    detail: str
    good: bool
    facts: FactList
    sections: tuple[Section, ...]


def without_empty(made: Table) -> Table:
    """The table without columns that are empty in every row."""
    nothing = ("", UNKNOWN)
    kept = [
        index
        for index in range(len(made.columns))
        if any(row[index].text not in nothing for row in made.rows) or not made.rows
    ]
    rows = tuple(tuple(row[index] for index in kept) for row in made.rows)
    return replace(made, columns=tuple(made.columns[index] for index in kept), rows=rows)


def words(text: str) -> Cell:
    """A left-aligned cell."""
    return Cell(text, words=True)


def numbers(*texts: str) -> tuple[Cell, ...]:
    """Right-aligned cells."""
    return tuple(Cell(text) for text in texts)


def table(
    caption: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, rest: str = "summary.json"
) -> Table:
    return Table(caption, tuple(columns), tuple(tuple(row) for row in rows), rest)
