"""An SQLite file of the service folder, opened with its migrations; any process may open it."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edge_client.security.identity.private_files import OWNER_FILE, private_folder
from schemas.errors import ConfigError

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
            raise ConfigError(f"{path}: {error}: restore it from a backup, or move it away") from error

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
                    f"{self.path} has format {known} and this version of edge-server knows "
                    f"{len(migrations)}: install the newer version, or restore a backup of this one"
                )
            for script in migrations[known:]:
                for statement in filter(str.strip, script.split(";")):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version={len(migrations)}")

    def _format(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])
