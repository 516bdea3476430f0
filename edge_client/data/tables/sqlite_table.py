"""Tables of an SQLite file."""

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from edge_client.data.tables.table import Row, Table
from schemas.errors import ConfigError, nearest

BUSY_S = 10.0  # seconds to wait for a process that writes to the file


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a file that `table` names, or its only one, and its options."""
    return SqliteTable(path, options.get("table", "")), options


@dataclass(frozen=True)
class SqliteTable(Table):
    """One table of a file; an empty `name` is its only table. Rows come in the order of their row numbers."""

    path: Path
    name: str = ""

    @contextmanager
    def open_rows(self) -> Iterator[Iterator[Row]]:
        try:
            with open_database(self.path) as database:
                yield _rows(database, self._existing_name(database))
        except sqlite3.Error as error:
            raise ConfigError(
                f"{self.path} is not an SQLite file with such a table, or is broken", quoted=error
            ) from error

    def place(self, number: int) -> str:
        return f"{self.path} table '{self.name}' row {number}" if self.name else super().place(number)

    def _existing_name(self, database: sqlite3.Connection) -> str:
        """The name of the table; `ConfigError` unless there is exactly one such."""
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite_%'"
        names: list[str] = [name for (name,) in database.execute(query)]
        if self.name in names:
            return self.name
        if not self.name and len(names) == 1:
            return names[0]
        hint = nearest(self.name, names) if self.name else ": state table=NAME"
        every = ", ".join(sorted(names)) or "none"
        raise ConfigError(f"{self.path} has no table '{self.name}'{hint}; it has {every}")


@contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """A file to read while others write to it; `ConfigError` if there is none."""
    if not path.is_file():
        raise ConfigError(f"cannot read {path}: there is no such file")
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
        database.execute(f"PRAGMA busy_timeout = {int(BUSY_S * 1000)}")
        yield database


def _rows(database: sqlite3.Connection, name: str) -> Iterator[Row]:
    quoted = name.replace('"', '""')
    found = database.execute(f'SELECT * FROM "{quoted}"')
    yield 0, [column[0] for column in found.description]
    for number, row in enumerate(found, 1):
        yield number, ["" if value is None else str(value) for value in row]
