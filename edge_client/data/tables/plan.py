"""Which columns of a table are read, what becomes of missing values, and what a read returns."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.class_folders import MAX_BROKEN
from edge_client.data.tables.values import Seconds
from schemas.errors import ConfigError
from schemas.values import SkippedFiles

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
