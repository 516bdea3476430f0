"""What an experiment found, whatever its kind: tables, figures for programs, pictures."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_server.observability.report.charts import Chart

NOTHING = ""


@dataclass(frozen=True)
class Table:
    """A table as people read it: all cells are texts, the first of a row is its name."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Findings:
    """`records` are the lines of table.csv, `details` go into results.json, `pictures` lie in the folder.
    `charts` say again what is in them, for pages.

    `failures` are the runs that left no figures, `interrupted` says that runs are missing.
    """

    tables: tuple[Table, ...]
    records: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    interrupted: bool = False
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n - 1; None for one value) over the seeds that have the value."""

    mean: float
    deviation: float | None
    count: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """The spread of the values that are there, None where none is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.fmean(known), deviation, len(known))


def without_empty(table: Table) -> Table:
    """The table without the columns that say nothing in any row."""
    kept = [i for i in range(len(table.columns)) if i == 0 or any(row[i] != NOTHING for row in table.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(table.caption, tuple(table.columns[i] for i in kept), rows)


def markdown_table(table: Table) -> str:
    """The table in Markdown, numbers to the right."""
    lines = [table.columns, ["---", *["---:"] * (len(table.columns) - 1)], *table.rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """One line per record under the keys of all of them."""
    if not records:
        return ""
    keys = list(dict.fromkeys(key for record in records for key in record))
    stream = io.StringIO()
    writer = csv.DictWriter(stream, keys, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def _cell(text: str) -> str:
    return text.replace("|", "\\|") or " "
