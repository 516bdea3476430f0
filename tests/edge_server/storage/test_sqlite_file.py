"""A file of the service folder migrates once, and is refused if a newer version wrote it."""

import sqlite3
from pathlib import Path

import pytest

from edge_server.storage.sqlite_file import SqliteFile
from schemas.errors import ConfigError

FIRST = "CREATE TABLE jobs (name TEXT); INSERT INTO jobs VALUES ('nightly')"
SECOND = "ALTER TABLE jobs ADD COLUMN weight REAL NOT NULL DEFAULT 1"


def rows(file: SqliteFile) -> list[tuple[object, ...]]:
    with file.reading() as database:
        return database.execute("SELECT * FROM jobs").fetchall()


def test_an_older_file_is_brought_to_the_format_of_today(tmp_path: Path) -> None:
    SqliteFile(tmp_path / "a.sqlite", (FIRST,)).close()
    file = SqliteFile(tmp_path / "a.sqlite", (FIRST, SECOND))
    assert rows(file) == [("nightly", 1.0)]
    file.close()
    assert rows(SqliteFile(tmp_path / "a.sqlite", (FIRST, SECOND))) == [("nightly", 1.0)]


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    SqliteFile(tmp_path / "a.sqlite", (FIRST, SECOND)).close()
    with pytest.raises(ConfigError, match="format 2 and this version of edge-server knows 1"):
        SqliteFile(tmp_path / "a.sqlite", (FIRST,))


def test_a_failed_migration_leaves_the_older_format(tmp_path: Path) -> None:
    SqliteFile(tmp_path / "a.sqlite", (FIRST,)).close()
    with pytest.raises(ConfigError):
        SqliteFile(tmp_path / "a.sqlite", (FIRST, f"{SECOND}; INSERT INTO nothing VALUES (1)"))
    assert rows(SqliteFile(tmp_path / "a.sqlite", (FIRST,))) == [("nightly",)]


def test_a_transaction_that_fails_writes_nothing(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "a.sqlite", (FIRST,))

    def change() -> None:
        with file.writing() as database:
            database.execute("DELETE FROM jobs")
            database.execute("INSERT INTO nothing VALUES (1)")

    with pytest.raises(sqlite3.OperationalError):
        change()
    assert rows(file) == [("nightly",)]


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.sqlite").write_bytes(b"not a database, whatever its name" * 40)
    with pytest.raises(ConfigError, match=r"a\.sqlite"):
        SqliteFile(tmp_path / "a.sqlite", (FIRST,))
