"""Copies of SQLite files that other processes write meanwhile, by SQLite's backup API."""

import sqlite3
from contextlib import closing
from pathlib import Path

from schemas.errors import ConfigError

MAGIC = b"SQLite format 3\0"
PATIENCE_S = 10.0  # Longest wait for another process's transaction
COMPANIONS = ("-wal", "-shm", "-journal")
"""Ends of the names of files that SQLite keeps next to its own; a copy holds their content."""


def is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def copy_sqlite(source: Path, target: Path) -> None:
    """Write a copy in one transaction of the source; raises `ConfigError` for a damaged file."""
    target.unlink(missing_ok=True)
    # An empty source has no pages to write.
    target.touch()
    try:
        with closing(reading(source)) as connection, closing(sqlite3.connect(target)) as copy:
            connection.backup(copy)
    except sqlite3.Error as error:
        raise ConfigError(
            f"{source}: cannot be copied: {error}: restore it from an earlier backup, or move it away"
        ) from error


def reading(path: Path) -> sqlite3.Connection:
    """A connection to read with. It may write: the last connection to close removes a write-ahead log.

    A file that this user may not write to is taken as it lies there, unless it has a write-ahead log.
    """
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=PATIENCE_S)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=PATIENCE_S)
    return connection
