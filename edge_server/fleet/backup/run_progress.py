"""How far a run is, by its journal: what decides which of its files belong together."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from edge_server.fleet.backup.sqlite_copies import reading
from schemas.errors import ConfigError


class RunProgress(NamedTuple):
    """The newest planning and closed round, the number of given-up rounds, whether the run is over.

    While it stays the same, a server changes no file that a resumption needs: it writes the files of the next
    step before its journal names them, and deletes old ones two steps later.
    """

    attempt: int
    round: int
    undone: int
    ends: int


QUERIES = (
    "SELECT coalesce(max(attempt), 0) FROM plannings",
    "SELECT coalesce(max(round), 0) FROM rounds",
    "SELECT count(*) FROM undone",
    "SELECT count(*) FROM ends",
)


def progress_of(journal: Path) -> RunProgress:
    """How far the run of a journal is; raises `ConfigError` for a damaged one."""
    try:
        with closing(reading(journal)) as connection:
            connection.execute("BEGIN")
            return RunProgress(*(_count(connection, query) for query in QUERIES))
    except sqlite3.Error as error:
        raise ConfigError(f"{journal}: no journal that can be read: {error}") from error


def _count(connection: sqlite3.Connection, query: str) -> int:
    try:
        return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError as error:
        # A journal that is being made has no tables.
        if "no such table" in str(error):
            return 0
        raise
