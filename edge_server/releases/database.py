"""An SQLite file with the rollouts of models or of client releases."""

import contextlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from schemas.errors import ConfigError

ROLLOUT_TABLES = """
CREATE TABLE IF NOT EXISTS rollouts (
    rollout TEXT PRIMARY KEY, version TEXT NOT NULL, federation TEXT NOT NULL, rules TEXT NOT NULL,
    phase TEXT NOT NULL, opened INTEGER NOT NULL, why TEXT NOT NULL, began_at REAL NOT NULL, ended_at REAL);
CREATE TABLE IF NOT EXISTS targets (
    rollout TEXT NOT NULL, device TEXT NOT NULL, tier INTEGER NOT NULL, batch INTEGER NOT NULL,
    status TEXT NOT NULL, report TEXT, at REAL NOT NULL, PRIMARY KEY (rollout, device));
"""


@contextlib.contextmanager
def open_database(path: Path, schema: str, *, version: int, what: str) -> Iterator[sqlite3.Connection]:
    """A connection for one transaction, which is on disk at the end of the block; raises `ConfigError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=30)) as connection:
            (found,) = connection.execute("PRAGMA user_version").fetchone()
            if found > version:
                raise ConfigError(
                    f"{path} has format {found} and this version of edge-server knows {version}",
                    remedy="install the newer version",
                )
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.executescript(schema)
            connection.execute(f"PRAGMA user_version={version}")
            with connection:
                yield connection
    except sqlite3.Error as error:
        raise ConfigError(f"{what} {path.parent}: {error}") from error
