"""The journal: what was decided, accepted and aggregated, in SQLite, on disk before anyone is told.

A server that is killed at any instruction goes on from here: the tasks of the round that is open, the updates
that it has accepted, the rounds that are closed, each with its line of history.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_server.fleet import Device
from edge_server.round_events import Assignment
from schemas.errors import ConfigError
from schemas.messages import Delivery, Update

FORMAT = 2
SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    run TEXT NOT NULL, federation TEXT NOT NULL, began_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS devices (
    device TEXT PRIMARY KEY, session INTEGER NOT NULL, profile TEXT NOT NULL, data TEXT NOT NULL,
    seen_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS plannings (
    attempt INTEGER PRIMARY KEY, round INTEGER NOT NULL, deliver INTEGER NOT NULL, needed INTEGER,
    selected TEXT NOT NULL, clients TEXT NOT NULL, rng TEXT NOT NULL, planned_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS tasks (
    device TEXT PRIMARY KEY, attempt INTEGER NOT NULL, task TEXT NOT NULL, max_bytes INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS updates (
    attempt INTEGER NOT NULL, round INTEGER NOT NULL, device TEXT NOT NULL, digest TEXT NOT NULL,
    bytes INTEGER NOT NULL, examples INTEGER NOT NULL, ratio REAL, message TEXT NOT NULL, reason TEXT,
    at REAL NOT NULL, PRIMARY KEY (attempt, device, digest));
CREATE TABLE IF NOT EXISTS rounds (
    round INTEGER PRIMARY KEY, state_sha256 TEXT NOT NULL, updates TEXT NOT NULL, record TEXT NOT NULL,
    traffic TEXT NOT NULL, closed_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    attempt INTEGER NOT NULL, device TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (attempt, device));
"""


@dataclass(frozen=True)
class Planned:
    """A planning as it was written; `clients` are those who were there, {name: (tier, examples)}.

    `rng` is what the choice's random generator was begun with: the generator's whole state at that point.
    """

    attempt: int
    round: int
    deliver: bool
    needed: int | None
    selected: tuple[str, ...]
    clients: Mapping[str, tuple[int, int]]
    rng: tuple[int, ...]
    planned_at: float


@dataclass(frozen=True)
class Aggregated:
    """An update that a round was made of: who sent it, in which attempt, how late."""

    device: str
    attempt: int
    digest: str
    staleness: int


class Journal:
    """One connection in WAL mode; usable from any thread.

    One that is not `durable` does not wait for the disk: it outlives its process, but not a power cut. It
    keeps no tasks either, which make the bulk of it: a simulation goes on from its own checkpoint.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        self._connection.executescript(SCHEMA)
        self._connection.execute(f"PRAGMA user_version={FORMAT}")

    @contextmanager
    def _written(self) -> Any:
        with self._lock, self._connection:
            yield self._connection

    def begun(self, run: str, federation: str) -> None:
        """The run has a name, once and for all."""
        with self._written() as written:
            written.execute("DELETE FROM run")
            written.execute("INSERT INTO run VALUES (?, ?, ?)", (run, federation, time.time()))

    def planned(
        self,
        attempt: int,
        round_number: int,
        assignments: Mapping[str, Assignment],
        *,
        devices: Iterable[Device] = (),
        clients: Mapping[str, tuple[int, int]] | None = None,
        needed: int | None = None,
        rng: Iterable[int] = (),
        deliver: bool = False,
    ) -> None:
        """Keep a planning: who was there, who is asked to do what."""
        now = time.time()
        row = (
            attempt,
            round_number,
            deliver,
            needed,
            json.dumps(sorted(assignments)),
            json.dumps(clients or {}),
            json.dumps(list(rng)),
            now,
        )
        with self._written() as written:
            written.execute("INSERT OR REPLACE INTO plannings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            written.executemany(
                "INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?, ?)",
                [
                    (d.name, d.session, d.profile.model_dump_json(), d.data.model_dump_json(), now)
                    for d in devices
                ],
            )
            if self._durable:
                written.executemany(
                    "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?)",
                    [
                        (device, attempt, one.task.model_dump_json(), one.max_bytes)
                        for device, one in assignments.items()
                    ],
                )

    def examined(self, update: Update, *, reason: str | None, ratio: float | None = None) -> None:
        """An update was accepted (`reason` is None) or refused; `ratio` is its task's."""
        row = (
            update.attempt,
            update.round,
            update.device,
            update.blob.digest,
            update.blob.size,
            update.metrics.examples,
            ratio,
            update.model_dump_json(),
            reason,
            time.time(),
        )
        with self._written() as written:
            written.execute("INSERT OR REPLACE INTO updates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def closed(
        self,
        round_number: int,
        state_sha256: str,
        *,
        updates: Iterable[Aggregated],
        over: Iterable[str],
        record: str,
        traffic: Mapping[str, Any],
    ) -> None:
        """A round was aggregated into the model of that digest; the tasks of these devices are `over`.

        `record` is its line of history, `traffic` the counts of the run so far.
        """
        made_of = json.dumps([[one.device, one.attempt, one.digest, one.staleness] for one in updates])
        with self._written() as written:
            written.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?, ?, ?, ?)",
                (round_number, state_sha256, made_of, record, json.dumps(traffic), time.time()),
            )
            written.executemany("DELETE FROM tasks WHERE device = ?", [(device,) for device in over])

    def delivered(self, delivery: Delivery) -> None:
        """A device has its compact model in place."""
        row = (delivery.attempt, delivery.device, delivery.model_dump_json(), time.time())
        with self._written() as written:
            written.execute("INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?)", row)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class JournalReader:
    """What a journal says, read by whoever wants to know; raises `ConfigError` where there is none."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise ConfigError(f"there is no journal at {path}")
        self._connection = sqlite3.connect(path)
        try:
            found = self._connection.execute("PRAGMA user_version").fetchone()[0]
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} is no journal: {error}") from error
        if found != FORMAT:
            raise ConfigError(f"{path} is a journal of format {found}; this program reads format {FORMAT}")

    def close(self) -> None:
        """End the connection."""
        self._connection.close()

    def run(self) -> str | None:
        """The run's name; None before it has one."""
        row = self._connection.execute("SELECT run FROM run").fetchone()
        return None if row is None else str(row[0])

    def plannings(self) -> list[Planned]:
        """Every planning, in order."""
        return [
            Planned(
                attempt,
                number,
                bool(deliver),
                needed,
                tuple(json.loads(selected)),
                {name: (tier, examples) for name, (tier, examples) in json.loads(clients).items()},
                tuple(json.loads(rng)),
                at,
            )
            for attempt, number, deliver, needed, selected, clients, rng, at in self._connection.execute(
                "SELECT * FROM plannings ORDER BY attempt"
            )
        ]

    def tasks(self) -> list[tuple[str, int, str, int]]:
        """Each device's open task as (device, attempt, task, most bytes of its answer), by attempt."""
        return self._connection.execute(
            "SELECT device, attempt, task, max_bytes FROM tasks ORDER BY attempt, device"
        ).fetchall()

    def devices(self) -> list[tuple[str, int, str, str]]:
        """Every device that was there at a planning, as (name, session, profile, data)."""
        return self._connection.execute(
            "SELECT device, session, profile, data FROM devices ORDER BY device"
        ).fetchall()

    def updates(self) -> list[tuple[Update, str | None, float | None]]:
        """Every examined update with the reason of its refusal and its task's ratio, oldest first."""
        rows = self._connection.execute("SELECT message, reason, ratio FROM updates ORDER BY at, rowid")
        return [(Update.model_validate_json(message), reason, ratio) for message, reason, ratio in rows]

    def rounds(self) -> list[tuple[int, str, list[Aggregated], str, dict[str, Any]]]:
        """Every closed round as (round, sha256 of its model, updates, line of history, counts)."""
        return [
            (number, sha256, [Aggregated(*one) for one in json.loads(updates)], record, json.loads(traffic))
            for number, sha256, updates, record, traffic in self._connection.execute(
                "SELECT round, state_sha256, updates, record, traffic FROM rounds ORDER BY round"
            )
        ]

    def deliveries(self) -> list[Delivery]:
        """Every delivery that was acknowledged."""
        rows = self._connection.execute("SELECT message FROM deliveries ORDER BY at")
        return [Delivery.model_validate_json(message) for (message,) in rows]
