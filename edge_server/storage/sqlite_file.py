"""An SQLite file of the service folder, opened with its migrations; any process may open it."""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edge_client.security.identity.private_files import OWNER_FILE, private_folder
from edge_server.storage.disk import disk_has_failed
from schemas.errors import ConfigError, PeerError

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
    getattr(sqlite3, f"SQLITE_{action}") for action in ("INSERT", "DELETE", "UPDATE", "READ", "TRANSACTION")
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


PATIENCE_S = 10.0  # Longest wait for another process's transaction


class SqliteFile:
    """One connection in WAL mode, usable from any thread; what is written waits for the disk.

    `migrations` are scripts, each of which brings the file to the next format; `PRAGMA user_version` counts
    the applied ones. Raises `ConfigError` for a file of a newer version of this program.
    """

    def __init__(self, path: Path, migrations: Sequence[str]) -> None:
        self.path = path
        self._lock = threading.RLock()
        private_folder(path.parent)
        try:
            self._connection = sqlite3.connect(
                path, check_same_thread=False, timeout=PATIENCE_S, isolation_level=None
            )
            path.chmod(OWNER_FILE)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
            self._migrate(migrations)
        except sqlite3.DatabaseError as error:
            raise ConfigError(
                str(error), place=path, remedy="restore it from a backup, or move it away"
            ) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read within one transaction, so that all queries see the same state."""
        with self._lock:
            self._connection.execute("BEGIN")
            try:
                yield self._connection
            finally:
                self._connection.execute("ROLLBACK")

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Write within one transaction: everything is on disk when the block ends, or nothing is."""
        with self._lock:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    def rows(self, query: str, *values: Any) -> list[Any]:
        with self.reading() as connection:
            return connection.execute(query, values).fetchall()

    def change(self, query: str, *values: Any) -> bool:
        """Execute one statement; returns whether it has changed a row."""
        with self.writing() as connection:
            return connection.execute(query, values).rowcount > 0

    def changed_elsewhere(self) -> int:
        """A number that changes whenever another connection has written to the file."""
        with self._lock:
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def version(self) -> tuple[int, int]:
        """A value that changes whenever any connection, this one included, has written to the file."""
        with self._lock:
            return self.changed_elsewhere(), self._connection.total_changes

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _migrate(self, migrations: Sequence[str]) -> None:
        if self._format() == len(migrations):
            return
        with self.writing():
            # Another process may have migrated the file while this one waited.
            known = self._format()
            if known > len(migrations):
                raise ConfigError(
                    f"{self.path} has format {known} and this version of edge-server knows {len(migrations)}",
                    remedy="install the newer version, or restore a backup of this one",
                )
            for script in migrations[known:]:
                for statement in filter(str.strip, script.split(";")):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version={len(migrations)}")

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])
