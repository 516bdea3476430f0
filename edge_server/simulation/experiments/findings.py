"""The findings of an experiment of any kind: tables, records, pictures."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_server.observability.report.charts import Chart
from edge_server.observability.report.parallel_axes import ParallelAxes

NOTHING = ""


@dataclass(frozen=True)
class Table:
    """A table of texts; the first cell of a row is its name."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Findings:
    """`records` are the lines of table.csv, `details` a part of results.json, `pictures` names of files.

    `charts` show the pictures' data on pages, `sweeps` figures by setting; `failures` are runs without
    figures.
    """

    tables: tuple[Table, ...]
    records: tuple[Mapping[str, Any], ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    pictures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    interrupted: bool = False
    charts: tuple[Chart, ...] = ()
    sweeps: tuple[ParallelAxes, ...] = ()


@dataclass(frozen=True)
class Spread:
    """Mean and standard deviation (n - 1; None for one value) over the seeds that have the value."""

    mean: float
    deviation: float | None
    count: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """The spread of the known values; None if all are unknown."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.fmean(known), deviation, len(known))


def without_empty(table: Table) -> Table:
    """The table without the columns that are empty in all rows."""
    kept = [i for i in range(len(table.columns)) if i == 0 or any(row[i] != NOTHING for row in table.rows)]
    rows = tuple(tuple(row[i] for i in kept) for row in table.rows)
    return Table(table.caption, tuple(table.columns[i] for i in kept), rows)


def markdown_table(table: Table) -> str:
    """The table in Markdown, with numbers aligned right."""
    lines = [table.columns, ["---", *["---:"] * (len(table.columns) - 1)], *table.rows]
    return "\n".join("| " + " | ".join(_cell(text) for text in line) + " |" for line in lines)


def csv_text(records: Sequence[Mapping[str, Any]]) -> str:
    """CSV with one line per record and one column per key of any record."""
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
