"""Reads columns of numbers from a CSV file, in blocks of rows.

Beside the arrays it returns, float32 for numbers, a read needs the memory of one block of `BLOCK` rows and,
while blocks are joined, of one more column: a file of 1 GB with numbers of ten characters takes 0.4 GB.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError, nearest

BLOCK = 65_536
"""Rows that are converted at once."""
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
"""What counts as a missing value, in small letters."""
ROW = "(row)"
"""The name of a first column that the header does not name."""

Column = NDArray[Any]


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
            return cls("number", float(text))
        except ValueError as error:
            raise ConfigError(
                f"{source}: missing={text} is neither refuse, drop, previous nor a number"
            ) from error


@dataclass(frozen=True)
class TablePlan:
    """The columns to read: as numbers, and as text."""

    numbers: tuple[str, ...]
    texts: tuple[str, ...]
    fill: Fill = Fill()


def header_of(path: Path) -> tuple[str, ...]:
    """The names of a file's columns; a first column without a name is called `ROW`.

    Raises `ConfigError` for a file that cannot be read, has no rows, or names a column twice.
    """
    with _opened(path) as rows:
        names, first = next(rows, None), next(rows, None)
    if names is None or first is None:
        raise ConfigError(f"{path} has no rows: expected a line of names, then one line per example")
    named = tuple(name.strip() for name in names)
    if len(first) == len(named) + 1:
        named = (ROW, *named)
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{path} line 1: two columns are called '{twice}': rename one")
    return named


def first_row(path: Path) -> dict[str, str]:
    """The values of the first row by column."""
    names = header_of(path)
    with _opened(path) as rows:
        return dict(zip(names, next(islice(rows, 1, None)), strict=False))


def is_number(text: str) -> bool:
    """Whether a value is a number, or missing."""
    if text.strip().lower() in MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def read_columns(path: Path, plan: TablePlan) -> dict[str, Column]:
    """The planned columns: numbers as float32 [N], texts as str [N].

    Raises `ConfigError` that names file, line, column and remedy for a missing column, a short line, a value
    that is no finite number, or a missing one unless the plan fills it.
    """
    names = header_of(path)
    for name in (*plan.numbers, *plan.texts):
        if name not in names:
            raise ConfigError(f"{path} has no column '{name}'{nearest(name, names)}: {', '.join(names)}")
    places = {name: names.index(name) for name in (*plan.numbers, *plan.texts)}
    parts: dict[str, list[Column]] = {name: [] for name in places}
    last: dict[str, float] = {}
    with _opened(path) as rows:
        next(rows)
        line = 2
        while block := list(islice(rows, BLOCK)):
            read = _Block(path, line, block, len(names), plan.fill)
            columns: dict[str, Column] = {
                name: read.numbers(name, places[name], last) for name in plan.numbers
            }
            kept = np.ones(len(block), bool)
            if plan.fill.how == "drop":
                for column in columns.values():
                    kept &= ~np.isnan(column)
            for name in plan.texts:
                columns[name] = read.texts(places[name])
            for name, column in columns.items():
                parts[name].append(column[kept])
            line += len(block)
    return {name: np.concatenate(parts.pop(name)) for name in [*parts]}


@dataclass(frozen=True)
class _Block:
    """Rows of a file, the first of which is on `line`."""

    path: Path
    line: int
    rows: Sequence[Sequence[str]]
    width: int
    fill: Fill

    def numbers(self, name: str, place: int, last: dict[str, float]) -> NDArray[np.float32]:
        found = np.empty(len(self.rows), np.float32)
        for index, row in enumerate(self.rows):
            found[index] = last[name] = self._number(name, self._value(row, index, place), index, last)
        return found

    def texts(self, place: int) -> NDArray[np.str_]:
        return np.array([self._value(row, index, place).strip() for index, row in enumerate(self.rows)])

    def _value(self, row: Sequence[str], index: int, place: int) -> str:
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
        return f"{self.path} line {self.line + index}"


class _opened:
    """The rows of a file, without empty lines, until the block ends."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> Iterator[list[str]]:
        try:
            self._file = self._path.open(newline="", encoding="utf-8-sig")
        except OSError as error:
            raise ConfigError(f"cannot read {self._path}: {error.strerror}") from error
        return self._rows()

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _rows(self) -> Iterator[list[str]]:
        try:
            yield from (row for row in csv.reader(self._file) if row)
        except (csv.Error, UnicodeDecodeError) as error:
            raise ConfigError(f"{self._path} is no table of text in UTF-8: {error}") from error
