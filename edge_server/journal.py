"""The journal: what was decided and accepted, in SQLite, on disk before anyone is told."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

SCHEMA = """
CREATE TABLE IF NOT EXISTS rounds (
    round INTEGER NOT NULL, attempt INTEGER NOT NULL, planned_at REAL NOT NULL, closed_at REAL,
    selected TEXT NOT NULL, state_sha256 TEXT, PRIMARY KEY (round, attempt));
CREATE TABLE IF NOT EXISTS updates (
    round INTEGER NOT NULL, device TEXT NOT NULL, digest TEXT NOT NULL, bytes INTEGER NOT NULL,
    examples INTEGER NOT NULL, reason TEXT, at REAL NOT NULL, norms TEXT,
    PRIMARY KEY (round, device, digest));
CREATE TABLE IF NOT EXISTS strikes (device TEXT NOT NULL, round INTEGER NOT NULL, reason TEXT NOT NULL);
"""


class Journal:
    """One connection in WAL mode; usable from any thread, one at a time.

    One that is not `durable` does not wait for the disk: it outlives its process, but not a power cut.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        self._connection.executescript(SCHEMA)

    def planned(self, round_number: int, selected: Iterable[str]) -> None:
        """A round was planned; planning it again is another attempt."""
        with self._connection:
            self._connection.execute(
                "INSERT INTO rounds (round, attempt, planned_at, selected) SELECT ?, count(*) + 1, ?, ?"
                " FROM rounds WHERE round = ?",
                (round_number, time.time(), json.dumps(sorted(selected)), round_number),
            )

    def examined(
        self,
        round_number: int,
        device: str,
        digest: str,
        *,
        size: int,
        examples: int,
        reason: str | None,
        norms: Mapping[str, float] | None = None,
    ) -> None:
        """An update was accepted (`reason` is None) or refused; its norms, as far as they were taken."""
        with self._connection:
            self._connection.execute(
                "INSERT OR REPLACE INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (round_number, device, digest, size, examples, reason, time.time(), json.dumps(norms or {})),
            )

    def struck(self, device: str, round_number: int, reason: str) -> None:
        """A refusal counts against a device."""
        with self._connection:
            self._connection.execute("INSERT INTO strikes VALUES (?, ?, ?)", (device, round_number, reason))

    def closed(self, round_number: int, state_sha256: str) -> None:
        """A round was aggregated into the model of that digest."""
        with self._connection:
            self._connection.execute(
                "UPDATE rounds SET closed_at = ?, state_sha256 = ? WHERE round = ? AND attempt ="
                " (SELECT max(attempt) FROM rounds WHERE round = ?)",
                (time.time(), state_sha256, round_number, round_number),
            )

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
