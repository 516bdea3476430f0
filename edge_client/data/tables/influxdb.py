"""InfluxDB's annotated CSV, as a Flux query or an export gives it, as a table with a column for each field.

The file has several tables, one below the other, each with lines of annotations (`#group`, `#datatype`,
`#default`) and a header. A line has one field's value (`_field`, `_value`), or, after `pivot`, all of them.
"""

import csv
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from edge_client.data.source_options import names_in
from edge_client.data.tables.series_rows import in_series, seconds_of, wide_rows
from edge_client.data.tables.table import ROW, Row, Table
from schemas.errors import ConfigError, format_count, nearest

TIME, FIELD, VALUE = "_time", "_field", "_value"
OF_QUERY = frozenset({"", "result", "table", "_start", "_stop"})  # columns about the query, which are no data


@dataclass(frozen=True)
class Point:
    """A line of a table by its columns, of which `tags` tell series apart."""

    columns: Mapping[str, str]
    tags: tuple[str, ...]

    @property
    def is_long(self) -> bool:
        """Whether the line has one field's value."""
        return FIELD in self.columns and VALUE in self.columns


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file, and its options; by default rows that lack a value are left out.

    Points with equal tags form a series. With `name`, the columns that name a value in place of its field, or
    with `group`, a series are those with equal `group`.
    """
    name, group = names_in(options, "name"), names_in(options, "group")
    series = group if name or group else None
    table = InfluxTable(path, name or (FIELD,), series, every=seconds_of(options, path))
    return table, {"time": TIME, "missing": "drop", **in_series(options, ignore=table.series)}


@dataclass(frozen=True)
class InfluxTable(Table):
    """A file of tables: a row for each moment of a series, or one every `every` seconds.

    A value has the name that the columns `name` give. The columns `group`, by default all tags, tell series
    apart.
    """

    path: Path
    name: tuple[str, ...] = (FIELD,)
    group: tuple[str, ...] | None = None
    every: float = 0

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows, one series after the other; `ConfigError` for what is no such file."""
        yield enumerate(self._rows())

    @cached_property
    def series(self) -> tuple[str, ...]:
        """The columns that tell series apart."""
        if self.group is not None:
            return self.group
        return tuple(dict.fromkeys(tag for point in self._points for tag in point.tags))

    @cached_property
    def _points(self) -> list[Point]:
        points = list(_points(self.path))
        for name in (*self.name, *(self.group or ())):
            lacking = next(
                (p for p in points if name not in p.columns and (p.is_long or name != FIELD)), None
            )
            if lacking is not None:
                raise ConfigError(
                    f"{self.path} has a table without a column '{name}'{nearest(name, lacking.columns)}: "
                    f"{', '.join(lacking.columns)}"
                )
        return points

    def _rows(self) -> Iterator[list[str]]:
        series = dict[tuple[str, ...], list[tuple[float, dict[str, str]]]]()
        for point in self._points:
            key = tuple(point.columns.get(tag, "") for tag in self.series)
            series.setdefault(key, []).append((_seconds(self.path, point), self._values(point)))
        names = list(dict.fromkeys(name for rows in series.values() for _, row in rows for name in row))
        yield [ROW, *self.series, TIME, *names]
        for number, (key, rows) in enumerate(sorted(series.items()), 1):
            readings = (
                (time, name, value)
                for time, row in sorted(rows, key=lambda row: row[0])
                for name, value in row.items()
            )
            for row in wide_rows(readings, names, every=self.every):
                yield [str(number), *key, *row]

    def _values(self, point: Point) -> dict[str, str]:
        if point.is_long:
            return {".".join(point.columns[name] for name in self.name): point.columns[VALUE]}
        known = {*OF_QUERY, *self.series, *point.tags, TIME}
        return {name: value for name, value in point.columns.items() if name not in known}


def _points(path: Path) -> Iterator[Point]:
    """The lines of all tables; a last line that is half written waits for the next look."""
    header, notes = list[str](), dict[str, list[str]]()
    for number, row in _lines(path):
        if not row or (header and row[0].startswith("#")):
            header, notes = [], {}
        if row and row[0].startswith("#"):
            notes[row[0]] = row
        elif row and not header:
            header = row
        elif row:
            if len(row) != len(header):
                raise ConfigError(
                    f"{path} line {number}: {format_count(len(row), 'value')} for "
                    f"{format_count(len(header), 'column')}",
                    remedy="repair the line",
                )
            yield _point(path, dict(zip(header, row, strict=True)), header, notes)


def _point(path: Path, columns: dict[str, str], header: list[str], notes: Mapping[str, list[str]]) -> Point:
    """A line with its missing values as the annotations state them."""
    if columns.keys() <= {"", "error", "reference"}:
        raise ConfigError(f"{path} holds the error of a query", quoted=columns.get("error"))
    if TIME not in columns:
        raise ConfigError(
            f"a table without a column '{TIME}'",
            place=path,
            remedy="influxdb: reads annotated CSV, the answer of a query; csv:PATH reads other tables",
        )
    usual, grouped = notes.get("#default", []), notes.get("#group", [])
    columns |= {name: value for name, value in zip(header, usual, strict=False) if not columns[name]}
    if FIELD in columns and VALUE in columns:
        tags = [name for name in header if name == "_measurement" or not name.startswith("_")]
    else:
        tags = [name for name, is_group in zip(header, grouped, strict=False) if is_group == "true"]
    return Point(columns, tuple(tag for tag in tags if tag not in OF_QUERY))


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(line for line in file if line.endswith("\n"))
            for row in reader:
                yield reader.line_num, row
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a table of text in UTF-8: {error}") from error


def _seconds(path: Path, point: Point) -> float:
    """The time of a line in seconds since 1970."""
    text = point.columns[TIME]
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(
            f"a value of the column '{TIME}' is not a time, such as 2026-11-28T12:00:00Z",
            place=path,
            quoted=repr(text),
        ) from error
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()
