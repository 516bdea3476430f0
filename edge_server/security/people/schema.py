"""The schema of people.sqlite and its migrations, numbered by `PRAGMA user_version`."""

import os
import sqlite3
from pathlib import Path

from schemas.errors import ConfigError

MIGRATIONS = (
    """
CREATE TABLE users (
    name TEXT PRIMARY KEY, role TEXT NOT NULL, made_at REAL NOT NULL, password_hash TEXT,
    subject TEXT UNIQUE);
CREATE TABLE sessions (
    digest BLOB PRIMARY KEY, user TEXT NOT NULL REFERENCES users(name) ON DELETE CASCADE,
    made_at REAL NOT NULL, seen_at REAL NOT NULL);
CREATE INDEX sessions_of_users ON sessions(user);
CREATE TABLE tokens (
    name TEXT PRIMARY KEY, digest BLOB NOT NULL UNIQUE, role TEXT NOT NULL, selector TEXT NOT NULL,
    made_by TEXT NOT NULL, made_at REAL NOT NULL, ends_at REAL NOT NULL, used_at REAL);
CREATE TABLE failures (
    kind TEXT NOT NULL, name TEXT NOT NULL, count INTEGER NOT NULL, last_at REAL NOT NULL,
    PRIMARY KEY (kind, name));
""",
)
"""One script per version; a released one is never changed."""
BUSY_S = 10.0
OWNER_FILE = 0o600


def open_database(path: Path) -> sqlite3.Connection:
    """Open people.sqlite, with today's schema; raises `ConfigError` for a file of a newer version."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, OWNER_FILE))
        connection = sqlite3.connect(path, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(f"{path}: the users cannot be read: {error}") from error
    try:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}")
        _migrate(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        raise ConfigError(f"{path}: the users cannot be read: {error}; restore a backup") from error
    except BaseException:
        connection.close()
        raise
    return connection


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the schema up to date in one transaction; another process may do so at the same time."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(MIGRATIONS):
            raise ConfigError(
                f"{path}: made by a newer version of this program (format {version}, known: "
                f"{len(MIGRATIONS)}); install that version"
            )
        for script in MIGRATIONS[version:]:
            for statement in script.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={len(MIGRATIONS)}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
