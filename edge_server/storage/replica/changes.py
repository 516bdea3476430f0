"""Changes of an SQLite file as statements with their values, to be repeated on a copy."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

Change = tuple[str, list[list[Any]]]
"""A statement, and the values of each of its executions."""
Changes = list[Change]


class RecordedConnection:
    """A connection that remembers what it has changed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.changes: Changes = []

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute once."""
        if not statement.startswith("SELECT"):
            self.changes.append((statement, [list(values)]))
        return self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Execute once per row."""
        known = [list(row) for row in rows]
        if known:
            self.changes.append((statement, known))
        self._connection.executemany(statement, known)


def repeat(connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
    """Make the same changes to a copy, in one transaction."""
    with connection:
        for statement, rows in changes:
            connection.executemany(statement, rows)
