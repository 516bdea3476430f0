"""Tables of texts under a header: what each kind offers, how headers are understood, what is read of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edge_client.data.class_folders import MAX_BROKEN
from edge_client.data.tables.values import Seconds
from schemas.errors import ConfigError
from schemas.values import SkippedFiles

LOOK = 100  # rows by which the header is judged
ROW = "(row)"  # the name of a first column that the header does not name

Row = tuple[int, Sequence[str]]  # the values of a row with its number, by which a message names it


class Table(ABC):
    """Rows of texts under a header, in the file `path`."""

    path: Path
    has_decimal: ClassVar[bool] = False  # whether the kind has the option `decimal`

    @abstractmethod
    def open_rows(self) -> AbstractContextManager[Iterator[Row]]:
        """The header as the first row, then all others; `ConfigError` for what is no such file."""

    def place(self, number: int) -> str:
        """Where a row is, for messages."""
        return f"{self.path} row {number}"

    @property
    def units(self) -> Mapping[str, str]:
        """The units of columns by name, where something else than the header knows them."""
        return {}

    @property
    def index_columns(self) -> tuple[str, ...]:
        """The columns that their writer has marked as the names of the rows."""
        return ()

    @property
    def skipped_files(self) -> SkippedFiles | None:
        """The broken ones of several files."""
        return None

    @property
    def settles_at(self) -> float | None:
        """When a half-written last row, which is left out, counts as whole, in seconds since 1970."""
        return None


def header_of(table: Table) -> tuple[str, ...]:
    """The names of a table's columns; one without a name is called `ROW`, or by its place, as "(column 3)".

    Rows with one value more than the header begin with a name of their own, as R writes them, unless it is
    an empty one at their end. Raises `ConfigError` for a file that cannot be read, has no rows, or names a
    column twice.
    """
    with table.open_rows() as rows:
        head, following = next(rows, None), [values for _, values in islice(rows, LOOK)]
    if head is None or not head[1] or not following:
        raise ConfigError(
            f"{table.path} has no rows", remedy="expected a line of names, then one line per example"
        )
    named = [name.strip() for name in head[1]]
    # numpy.savetxt writes "# a,b".
    named[0] = named[0].lstrip("# ") or named[0]
    longer = [values for values in following if len(values) == len(named) + 1]
    if 2 * len(longer) > len(following):
        if not any(values[-1].strip() for values in longer):
            named.append("")
        elif _are_row_names([values[0] for values in longer], len(named)):
            named.insert(0, "")
        else:
            raise ConfigError(
                "rows have one value more than there are names",
                place=table.place(head[0]),
                remedy="name all columns, or state delimiter= if commas are decimal ones",
            )
    named = [name or (f"(column {place})" if place > 1 else ROW) for place, name in enumerate(named, 1)]
    twice = next((name for name in named if named.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"two columns are called '{twice}'", place=table.place(head[0]), remedy="rename one"
        )
    return tuple(named)


def _are_row_names(values: Sequence[str], columns: int) -> bool:
    """Whether these values name rows; before a single column numbers must count, as 1,5 may be a number."""
    if columns == 1 and all(value.strip().lstrip("+-").isdecimal() for value in values):
        return len(values) > 1 and all(int(b) - int(a) == 1 for a, b in pairwise(values))
    return len(set(values)) == len(values)


def first_row(table: Table) -> tuple[int, dict[str, str]]:
    """The number of the first row that is as long as the header, and its values by column."""
    names = header_of(table)
    with table.open_rows() as rows:
        whole = (row for row in islice(rows, 1, None) if len(row[1]) == len(names))
        number, values = next(whole, (0, ()))
    return number, dict(zip(names, values, strict=False))


Column = NDArray[Any]


@dataclass(frozen=True)
class Fill:
    """What becomes of missing numbers: "refuse", "drop" the row, take the "previous" row's, or a `number`."""

    how: str = "refuse"
    number: float = math.nan

    @classmethod
    def parse(cls, text: str, *, source: str) -> "Fill":
        """A word or a number; `ConfigError` for anything else."""
        if text in ("refuse", "drop", "previous"):
            return cls(text)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ConfigError(f"missing={text} is neither refuse, drop, previous nor a number", place=source)
        return cls("number", number)


@dataclass(frozen=True)
class TablePlan:
    """The columns to read: `numbers`, `texts`, and `labels`, which are numbers if all of a column's are.

    `times` are one column, or one of days and one of hours. Columns of `sparse` may be empty: "" or NaN. A
    row of another `group` continues no series. At most the share `broken` of the rows is left out as broken.
    """

    numbers: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    time_format: str | None = None
    sparse: tuple[str, ...] = ()
    group: str | None = None
    fill: Fill = Fill()
    broken: float = MAX_BROKEN


@dataclass(frozen=True)
class TableRows:
    """The planned columns [N], numbers in float64 and texts as str, and the rows' times in seconds.

    `broken_before` [N] counts the broken rows that were left out before each; `is_local` are times without an
    offset.
    """

    columns: dict[str, Column]
    broken_before: NDArray[np.int32]
    times: Seconds | None = None
    is_local: bool = False
    skipped: SkippedFiles | None = None

    def __len__(self) -> int:
        return len(self.broken_before)
