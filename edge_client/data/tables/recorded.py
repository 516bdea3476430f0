"""The bounded SQLite file that `edge-client record` writes, and the source `recorded:PATH` that reads it.

Each row has a number (`seq`), an `id` by which a label finds it, the time at which it was recorded (`at`),
the `series` that it continues, a `label` once there is one, and a `rank`. A full store removes the rows of
the lowest rank first.
"""

import fcntl
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

import numpy as np

from edge_client.data.tables.sqlite_table import BUSY_S, SqliteTable
from edge_client.data.tables.table import Table
from schemas.errors import ConfigError

TABLE = "examples"
OWN = ("seq", "id", "at", "series", "rank", "label")  # the store's own columns
TRIM_EVERY = 50  # rows between two checks of the bounds
TRIMMED = 0.02  # share of the rows that goes at once where the store is too large


@dataclass(frozen=True)
class StoreLimits:
    """The bounds of a store: bytes, and seconds of age if any.

    `keep` decides who stays: the "newest" rows, or a "reservoir", of which every row ever recorded is equally
    likely to be one. With `balance` rows of the most frequent label go first.
    """

    most_bytes: int = 50_000_000
    most_age_s: float | None = None
    keep: Literal["newest", "reservoir"] = "newest"
    balance: bool = False


class ExampleStore:
    """A store that one process writes; others may read it meanwhile."""

    def __init__(
        self, path: Path, columns: tuple[str, ...], limits: StoreLimits, *, seed: int | None = None
    ) -> None:
        """Open or make the store; `ConfigError` for another file, other columns, or an impossible name."""
        self.path, self._columns, self._limits = path, columns, limits
        self._random = np.random.default_rng(seed)
        self._since_trim = 0
        own = next((name for name in columns if name in OWN), None)
        if own is not None:
            raise ConfigError(f"column '{own}' is one that every store has", remedy="give yours another name")
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = _only_writer(path)
        try:
            self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
            self._make()
        except sqlite3.Error as error:
            raise ConfigError(f"{path} is not a store of examples: {error}") from error
        self._series = 1 + int(self._one(f"SELECT coalesce(max(series), 0) FROM {TABLE}"))

    def close(self) -> None:
        self._database.close()
        self._lock.close()

    def __len__(self) -> int:
        return int(self._one(f"SELECT count(*) FROM {TABLE}"))

    def begin_series(self) -> None:
        """The next row does not continue those before it."""
        self._series += 1

    def add(
        self, values: Mapping[str, float], *, at: float, ident: str = "", label: str | None = None
    ) -> str:
        """Record a row and return its id, by default its time in milliseconds.

        A repeated id replaces its row.
        """
        ident = ident or str(int(at * 1000))
        names = ", ".join(_quote_name(name) for name in self._columns)
        marks = ", ".join("?" * (len(self._columns) + 4))
        self._database.execute(
            f"INSERT OR REPLACE INTO {TABLE} (id, at, series, label, {names}) VALUES ({marks})",
            (ident, at, self._series, label, *(values[name] for name in self._columns)),
        )
        rank = "seq" if self._limits.keep == "newest" else repr(float(self._random.random()))
        self._database.execute(f"UPDATE {TABLE} SET rank = {rank} WHERE seq = last_insert_rowid()")
        self._since_trim += 1
        if self._since_trim >= TRIM_EVERY:
            self.trim(at)
        return ident

    def label(self, ident: str, label: str) -> bool:
        """Label the row with this id; False if there is none."""
        changed = self._database.execute(f"UPDATE {TABLE} SET label = ? WHERE id = ?", (label, ident))
        return changed.rowcount > 0

    def label_span(self, first: float, last: float, label: str) -> int:
        """Label the rows that were recorded between two times; returns their number."""
        query = f"UPDATE {TABLE} SET label = ? WHERE at BETWEEN ? AND ?"
        return self._database.execute(query, (label, first, last)).rowcount

    def trim(self, now: float) -> None:
        """Remove rows that are too old, then those of the lowest rank until the store is small enough."""
        self._since_trim = 0
        if self._limits.most_age_s is not None:
            self._database.execute(f"DELETE FROM {TABLE} WHERE at < ?", (now - self._limits.most_age_s,))
        group = f"SELECT label FROM {TABLE} GROUP BY label ORDER BY count(*) DESC, label LIMIT 1"
        largest_class = f"WHERE label IS ({group})" if self._limits.balance else ""
        while self.used_bytes > self._limits.most_bytes and (count := len(self)) > 1:
            most = max(1, int(count * TRIMMED))
            chosen = f"SELECT seq FROM {TABLE} {largest_class} ORDER BY rank LIMIT {most}"
            self._database.execute(f"DELETE FROM {TABLE} WHERE seq IN ({chosen})")

    @property
    def used_bytes(self) -> int:
        """The bytes of the file's pages in use; pages that became free are used again."""
        pages, free, size = (
            int(self._one(f"PRAGMA {name}")) for name in ("page_count", "freelist_count", "page_size")
        )
        return (pages - free) * size

    def _make(self) -> None:
        for pragma in ("journal_mode = WAL", "synchronous = NORMAL"):
            self._database.execute(f"PRAGMA {pragma}")
        names = "".join(f", {_quote_name(name)} REAL" for name in self._columns)
        self._database.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT UNIQUE, "
            f"at REAL, series INTEGER, rank REAL, label TEXT{names})"
        )
        self._database.execute(f"CREATE INDEX IF NOT EXISTS by_rank ON {TABLE} (rank)")
        self._database.execute("CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT)")
        self._database.execute("INSERT OR REPLACE INTO settings VALUES ('keep', ?)", (self._limits.keep,))
        found = tuple(row[1] for row in self._database.execute(f"PRAGMA table_info({TABLE})"))
        if found != (*OWN, *self._columns):
            known = ", ".join(found[len(OWN) :])
            raise ConfigError(
                f"{self.path} has the columns {known}", remedy="state these, or name another file"
            )

    def _one(self, query: str) -> float:
        value: float = self._database.execute(query).fetchone()[0]
        return value


def _only_writer(path: Path) -> TextIO:
    """Hold the store for this process; `ConfigError` if another one writes it."""
    lock = path.with_name(f"{path.name}-lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(
            f"{path} is being written by another recorder", remedy="stop it, or name another file"
        ) from None
    return lock


def _quote_name(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


def open_table(path: Path, options: Mapping[str, str]) -> tuple[Table, Mapping[str, str]]:
    """The table of a store, whose rows form windows with those that were recorded next to them.

    `label=label` learns the labels, and leaves out rows without one.
    """
    if "window" in options and _keeps(path) == "reservoir":
        raise ConfigError(
            f"a reservoir keeps single rows, of which no window={options['window']} can be made",
            place=path,
            remedy="record with --keep newest",
        )
    ignored = ",".join(
        filter(None, (options.get("ignore"), "at,rank", "" if "label" in options else "label"))
    )
    usual = {"group": "series", "sequence": "seq", "id": "id", "unlabelled": "drop"}
    return SqliteTable(path, TABLE), {**usual, **options, "ignore": ignored}


def _keeps(path: Path) -> str:
    """Who stays in a store, by its last writer."""
    if not path.is_file():
        return ""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT value FROM settings WHERE name = 'keep'").fetchone()
    except sqlite3.Error as error:
        raise ConfigError(
            f"{path} is not a store of examples", remedy="edge-client record makes one", quoted=error
        ) from error
    return str(found[0]) if found else ""
