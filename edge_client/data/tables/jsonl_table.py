"""Tables in JSON lines, an object for each row."""

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from edge_client.data.said_once import say_once
from edge_client.data.tables.series_rows import Values, text_rows, with_windows
from edge_client.data.tables.table import Row, Table
from schemas.errors import ConfigError

MAX_LOOK = 1000  # objects at the beginning of a file whose keys are the columns
FORM = (
    "expected an object on each line, as pandas.DataFrame.to_json(orient='records', lines=True) writes them"
)


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file, and its options: lists of numbers are windows."""
    table = JsonlTable(path, even="window" not in options)
    return table, with_windows(table, options)


@dataclass(frozen=True)
class JsonlTable(Table):
    """A file of JSON objects, whose keys are columns; an object inside another has `outer.inner`.

    With `even` all lists of numbers must have one length.
    """

    path: Path
    even: bool = True

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        """The header, then the rows with the numbers of their lines; what an object lacks is missing."""
        try:
            with self.path.open(encoding="utf-8-sig") as file:
                first = islice(_objects(self, file), MAX_LOOK)
                names = list(dict.fromkeys(name for _, row in first for name in row))
                file.seek(0)
                yield text_rows(self, names, _rows(self, file, names), even=self.even)
        except OSError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.path} is not JSON in UTF-8: {error}") from error

    def place(self, number: int) -> str:
        return f"{self.path} line {number}"


def _objects(table: JsonlTable, lines: Iterator[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object of each line with its number; a last line that is half written waits for the next look."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            if not line.endswith("\n") and number > 1:
                say_once(f"{table.path}: line {number}, the last one, is half written: it is left out")
                return
            raise ConfigError(f"{table.place(number)} is not JSON ({error})", remedy=FORM) from error
        if not isinstance(value, dict):
            raise ConfigError(f"{table.place(number)} is not an object", remedy=FORM)
        # As pandas writes it by default: all rows of a column by their numbers.
        are_columns = (
            isinstance(v, dict) and "0" in v and all(map(str.isdecimal, v)) for v in value.values()
        )
        if value and all(are_columns):
            raise ConfigError(f"{table.place(number)} has whole columns, not a row", remedy=FORM)
        yield number, flat(value)


def _rows(table: JsonlTable, lines: Iterator[str], names: Sequence[str]) -> Iterator[Values]:
    known = set(names)
    for number, row in _objects(table, lines):
        if not row.keys() <= known:
            late = next(name for name in row if name not in known)
            say_once(f"{table.path}: '{late}', first in line {number}, is left out", logging.WARNING)
            known.add(late)
        yield number, [row.get(name) for name in names]


def flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of an object and of those inside it, by `outer.inner`."""
    values = dict[str, Any]()
    for name, part in value.items():
        if isinstance(part, Mapping):
            values |= flat(part, f"{prefix}{name}.")
        else:
            values[f"{prefix}{name}"] = part
    return values
