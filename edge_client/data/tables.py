"""Reads columns of numbers from a table, such as a CSV file, in blocks of rows.

Besides the arrays it returns, float32 for numbers, a read needs the memory of one block of `BLOCK` rows and,
while blocks are joined, of one more column: a file of 1 GB with numbers of ten characters takes 0.4 GB.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError, nearest

BLOCK = 65_536
"""Rows that are converted at once."""
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What counts as a missing value, in small letters."""
DROPPED = ""
"""In place of a missing text in a row that is left out."""
ROW = "(row)"
"""The name of a first column that the header does not name."""

Column = NDArray[Any]
Row = tuple[int, Sequence[str]]
"""The values of a row with its number, by which a message names it."""


class Table(Protocol):
    """Rows of texts under a header."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def units(self) -> Mapping[str, str]:
        """The units of columns by name, where something else than the header knows them."""

    def opened(self) -> AbstractContextManager[Iterator[Row]]:
        """The header as the first row, then all others, until the block ends."""

    def place(self, number: int) -> str:
        """Where a row is, for messages."""


@dataclass(frozen=True)
class CsvTable:
    """A CSV file in UTF-8; its first line names the columns."""

    path: Path
    units: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def opened(self) -> Iterator[Iterator[Row]]:
        """The rows with the numbers of their lines, without empty lines."""
        try:
            file = self.path.open(newline="", encoding="utf-8-sig")
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        with file:
            reader = csv.reader(file)
            try:
                yield ((reader.line_num, row) for row in reader if row)
            except (csv.Error, UnicodeDecodeError) as error:
                raise ConfigError(f"{self.path} is no table of text in UTF-8: {error}") from error

    def place(self, number: int) -> str:
        """The line, for messages."""
        return f"{self.path} line {number}"


@dataclass(frozen=True)
class Fill:
    """What becomes of missing numbers: "refuse", "drop" the row, take the "previous" row's, or a `number`."""

    how: str = "refuse"
    number: float = math.nan

    @classmethod
    def parsed(cls, text: str, *, source: str) -> "Fill":
        """A word or a number; `ConfigError` for anything else."""
        if text in ("refuse", "drop", "previous"):
            return cls(text)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError(f"{source}: missing={text} is neither refuse, drop, previous nor a number")
        return cls("number", number)


@dataclass(frozen=True)
class TablePlan:
    """The columns to read: as numbers, as text, and as text that may be missing, which is "".

    A row of another `group` continues no series.
    """

    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    optional: tuple[str, ...] = ()
    fill: Fill = Fill()
    group: str | None = None


def header_of(table: Table) -> tuple[str, ...]:
    """The names of a table's columns; a first column without a name is called `ROW`.

    Raises `ConfigError` for a file that cannot be read, has no rows, or names a column twice.
    """
    with table.opened() as rows:
        head, following = next(rows, None), next(rows, None)
    if head is None or following is None:
        raise ConfigError(f"{table.path} has no rows: expected a line of names, then one line per example")
    named = tuple(name.strip() for name in head[1])
    if len(following[1]) == len(named) + 1:
        named = (ROW, *named)
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{table.place(head[0])}: two columns are called '{twice}': rename one")
    return named


def first_row(table: Table) -> tuple[int, dict[str, str]]:
    """The number of the first row, and its values by column."""
    names = header_of(table)
    with table.opened() as rows:
        number, values = next(islice(rows, 1, None))
    return number, dict(zip(names, values, strict=False))


def is_number(text: str) -> bool:
    """Whether a value is a number, or missing."""
    if text.strip().lower() in MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_columns(table: Table, plan: TablePlan) -> dict[str, Column]:
    """The planned columns: numbers as float32 [N], texts as str [N].

    Raises `ConfigError` that names file, line, column and remedy for a missing column, a short line, a value
    that is no finite number, or a missing one unless the plan fills it.
    """
    names, wanted = header_of(table), (*plan.numbers, *plan.texts, *plan.optional)
    for name in wanted:
        if name not in names:
            raise ConfigError(
                f"{table.path} has no column '{name}'{nearest(name, names)}: {', '.join(names)}"
            )
    places = {name: names.index(name) for name in wanted}
    parts: dict[str, list[Column]] = {name: [] for name in places}
    last, group = dict[str, float](), None
    with table.opened() as rows:
        next(rows)
        while block := list(islice(rows, BLOCK)):
            read = _Block(table, block, len(names), plan.fill)
            if plan.group is not None:
                groups = read.texts(plan.group, places[plan.group]).tolist()
                read = replace(read, starts=tuple(a != b for a, b in pairwise([group, *groups])))
                group = groups[-1]
            columns: dict[str, Column] = {
                name: read.numbers(name, places[name], last) for name in plan.numbers
            }
            kept = np.ones(len(block), bool)
            if plan.fill.how == "drop":
                for column in columns.values():
                    kept &= ~np.isnan(column)
            for name in plan.texts:
                columns[name] = read.texts(name, places[name])
                kept &= columns[name] != DROPPED
            for name in plan.optional:
                columns[name] = read.optional_texts(places[name])
            for name, column in columns.items():
                parts[name].append(column[kept])
    if not any(len(part) for part in parts[next(iter(parts))]):
        raise ConfigError(
            f"{table.path}: every row lacks a value: fill them, missing=previous or missing=NUMBER"
        )
    return {name: np.concatenate(parts.pop(name)) for name in [*parts]}


@dataclass(frozen=True)
class _Block:
    """Some rows of a table; at `starts` another series begins."""

    table: Table
    rows: Sequence[Row]
    width: int
    fill: Fill
    starts: Sequence[bool] = ()

    def numbers(self, name: str, place: int, last: dict[str, float]) -> NDArray[np.float32]:
        found = np.empty(len(self.rows), np.float32)
        for index in range(len(self.rows)):
            if self.starts and self.starts[index]:
                last.pop(name, None)
            found[index] = last[name] = self._number(name, self._value(index, place), index, last)
        return found

    def texts(self, name: str, place: int) -> NDArray[np.str_]:
        return np.array([self._text(name, index, place) for index in range(len(self.rows))])

    def optional_texts(self, place: int) -> NDArray[np.str_]:
        texts = (self._value(index, place).strip() for index in range(len(self.rows)))
        return np.array(["" if text.lower() in MISSING else text for text in texts])

    def _text(self, name: str, index: int, place: int) -> str:
        text = self._value(index, place).strip()
        if text.lower() not in MISSING:
            return text
        if self.fill.how != "drop":
            where = f"{self._where(index)}: column '{name}'"
            raise ConfigError(f"{where} has no value: leave such rows out with missing=drop")
        return DROPPED

    def _value(self, index: int, place: int) -> str:
        row = self.rows[index][1]
        if len(row) != self.width:
            raise ConfigError(
                f"{self._where(index)}: {len(row)} values for {self.width} columns: repair the line"
            )
        return row[place]

    def _number(self, name: str, text: str, index: int, last: Mapping[str, float]) -> float:
        where = f"{self._where(index)}: column '{name}'"
        if text.strip().lower() in MISSING:
            return self._filled(where, last.get(name))
        try:
            value = float(text)
        except ValueError as error:
            raise ConfigError(
                f"{where} is {text[:40]!r}, no number: leave the column out with ignore={name}"
            ) from error
        if not math.isfinite(np.float32(value)):
            raise ConfigError(f"{where} is {text}: numbers are finite in float32; repair the line")
        return value

    def _filled(self, where: str, before: float | None) -> float:
        if self.fill.how == "number":
            return self.fill.number
        if self.fill.how == "drop":
            return math.nan
        if self.fill.how == "previous" and before is not None:
            return before
        raise ConfigError(
            f"{where} has no value: say what to do with missing=drop, missing=previous or missing=NUMBER"
        )

    def _where(self, index: int) -> str:
        return self.table.place(self.rows[index][0])
