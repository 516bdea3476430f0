"""Changes of an SQLite file as statements with their values, to be repeated on a copy."""

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

from edge_server.storage.disk import disk_has_failed
from schemas.errors import PeerError

Change = tuple[str, list[list[Any]]]  # A statement, and the values of each of its executions
Changes = list[Change]


class RecordedConnection:
    """A connection that remembers what it has changed."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.changes: Changes = []

    def execute(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        if not statement.startswith("SELECT"):
            self.changes.append((statement, [list(values)]))
        return self._connection.execute(statement, values)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        known = [list(row) for row in rows]
        if known:
            self.changes.append((statement, known))
        self._connection.executemany(statement, known)


ROWS = frozenset(
    {
        sqlite3.SQLITE_INSERT,
        sqlite3.SQLITE_DELETE,
        sqlite3.SQLITE_UPDATE,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_TRANSACTION,
    }
)


def only_rows(connection: sqlite3.Connection) -> None:
    """Let the connection change rows, and nothing else: statements come from another machine."""
    connection.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in ROWS else sqlite3.SQLITE_DENY)


def repeat(connection: sqlite3.Connection, changes: Iterable[Change]) -> None:
    """Make the same changes to a copy, in one transaction; raises `PeerError` for what changes no rows."""
    try:
        with connection:
            for statement, rows in changes:
                connection.executemany(statement, rows)
    except (sqlite3.DatabaseError, sqlite3.ProgrammingError) as error:
        if disk_has_failed(error):
            raise
        raise PeerError(f"no change of a journal: {error}") from error
