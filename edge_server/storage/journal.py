"""The journal: what was decided, accepted and aggregated, in SQLite, on disk before anyone is told.

A server that is killed at any instruction goes on from here: the tasks of the round that is open, the updates
that it has accepted, the rounds that are closed, each with its line of history.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_server.rounds.events import Assignment
from edge_server.rounds.fleet import Device
from edge_server.strategy.explanations import Observation, RoundChoices
from schemas.base import Frozen
from schemas.messages import Delivery, Update
from schemas.values import Reason

log = logging.getLogger(__name__)

FORMAT = 2
LEAVING_TRIES, LEAVING_PAUSE_S = 20, 0.05
"""How long the end waits for readers: their looks are short."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    run TEXT NOT NULL, federation TEXT NOT NULL, began_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS classes (names TEXT NOT NULL, agreed_at REAL NOT NULL);
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
    norms TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (attempt, device, digest));
CREATE TABLE IF NOT EXISTS strikes (device TEXT NOT NULL, round INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS rounds (
    round INTEGER PRIMARY KEY, state_sha256 TEXT NOT NULL, updates TEXT NOT NULL, record TEXT NOT NULL,
    traffic TEXT NOT NULL, closed_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS deliveries (
    attempt INTEGER NOT NULL, device TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (attempt, device));
CREATE TABLE IF NOT EXISTS choices (attempt INTEGER PRIMARY KEY, round INTEGER NOT NULL, said TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS observations (round INTEGER PRIMARY KEY, said TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS undone (
    round INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, state_sha256 TEXT NOT NULL, left_out TEXT NOT NULL,
    why TEXT NOT NULL, at REAL NOT NULL);
"""


@dataclass(frozen=True)
class Aggregated:
    """An update that a round was made of: who sent it, in which attempt, how late."""

    device: str
    attempt: int
    digest: str
    staleness: int


@dataclass(frozen=True)
class GivenUp:
    """A closed round that was undone, and the digest of the model that the next one began with.

    Plannings up to `attempt` are void; `left_out` had a part in it.
    """

    round: int
    attempt: int
    state_sha256: str
    left_out: tuple[str, ...]
    why: str


class Journal:
    """One connection in WAL mode; usable from any thread.

    One that is not `durable` does not wait for the disk: it outlives its process, but not a power cut. It
    keeps no tasks either, which make the bulk of it: a simulation goes on from its own checkpoint.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._together: list[tuple[Any, ...]] | None = None
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
        self._connection.executescript(SCHEMA)
        self._connection.execute(f"PRAGMA user_version={FORMAT}")

    @contextmanager
    def _written(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._connection:
            yield self._connection

    def begun(self, run: str, federation: str) -> None:
        """The run has a name, once and for all."""
        with self._written() as written:
            written.execute("DELETE FROM run")
            written.execute("INSERT INTO run VALUES (?, ?, ?)", (run, federation, time.time()))

    def agreed(self, classes: Iterable[str]) -> None:
        """The federation's list of classes is known, once and for all."""
        with self._written() as written:
            written.execute("DELETE FROM classes")
            written.execute("INSERT INTO classes VALUES (?, ?)", (json.dumps(list(classes)), time.time()))

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
        choices: RoundChoices | None = None,
    ) -> None:
        """Keep a planning: who was there, who is asked to do what, and with it why."""
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
                _device_rows(devices, now),
            )
            if choices is not None:
                _write_choices(written, choices)
            if self._durable:
                written.executemany(
                    "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?)",
                    [
                        (device, attempt, one.task.model_dump_json(), one.max_bytes)
                        for device, one in assignments.items()
                    ],
                )

    def examined(
        self,
        update: Update,
        *,
        reason: str | None,
        ratio: float | None = None,
        norms: Mapping[str, float] | None = None,
    ) -> None:
        """An update was accepted (`reason` is None) or refused; `ratio` is its task's.

        `norms` are its own, as far as they were taken.
        """
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
            json.dumps(norms or {}),
            time.time(),
        )
        if self._together is not None:
            self._together.append(row)
        else:
            self._write_examined([row])

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is examined in the block is written at its end, all at once; nothing of it where it raises."""
        rows: list[tuple[Any, ...]] = []
        self._together = rows
        try:
            yield
        finally:
            self._together = None
        self._write_examined(rows)

    def _write_examined(self, rows: Iterable[tuple[Any, ...]]) -> None:
        with self._written() as written:
            values = ", ".join("?" * 11)
            written.executemany(f"INSERT OR REPLACE INTO updates VALUES ({values})", rows)

    def struck(self, device: str, round_number: int, reason: str) -> None:
        """A refusal counts against a device."""
        with self._written() as written:
            written.execute("INSERT INTO strikes VALUES (?, ?, ?)", (device, round_number, reason))

    def closed(
        self,
        round_number: int,
        state_sha256: str,
        *,
        updates: Iterable[Aggregated],
        over: Iterable[str],
        record: str,
        traffic: Mapping[str, Any],
        observation: Observation | None = None,
        refused: Iterable[Update] = (),
    ) -> None:
        """A round was aggregated into the model of that digest; the tasks of these devices are `over`.

        Updates that were accepted one by one are `refused` beside all the others. `record` is its line of
        history, `traffic` the counts of the run so far, `observation` what it showed.
        """
        made_of = json.dumps([[one.device, one.attempt, one.digest, one.staleness] for one in updates])
        with self._written() as written:
            written.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?, ?, ?, ?)",
                (round_number, state_sha256, made_of, record, json.dumps(traffic), time.time()),
            )
            written.executemany("DELETE FROM tasks WHERE device = ?", [(device,) for device in over])
            written.executemany(
                "UPDATE updates SET reason = ? WHERE attempt = ? AND device = ? AND digest = ?",
                [(Reason.OUT_OF_BOUNDS, *_key(update)) for update in refused],
            )
            if observation is not None:
                _write_observation(written, observation)

    def undone(self, given_up: GivenUp, reputation: Iterable[tuple[str, int, str]]) -> None:
        """A closed round is given up, and these are the rows of the strikes' table that come with it."""
        row = (
            given_up.round,
            given_up.attempt,
            given_up.state_sha256,
            json.dumps(given_up.left_out),
            given_up.why,
            time.time(),
        )
        with self._written() as written:
            written.execute("INSERT OR REPLACE INTO undone VALUES (?, ?, ?, ?, ?, ?)", row)
            written.executemany("INSERT INTO strikes VALUES (?, ?, ?)", reputation)

    def norms(self, update: Update) -> dict[str, float]:
        """The norms of an update that was examined; none where it has none that can be read."""
        with self._lock:
            row = self._connection.execute(
                "SELECT norms FROM updates WHERE attempt = ? AND device = ? AND digest = ?", _key(update)
            ).fetchone()
        try:
            return dict(json.loads(row[0])) if row else {}
        except (ValueError, TypeError) as error:
            row_name = f"{update.attempt}, {update.device}"
            log.warning(
                "the journal's table 'updates', row %s: norms that cannot be read: %s", row_name, error
            )
            return {}

    def delivered(self, delivery: Delivery) -> None:
        """A device has its compact model in place."""
        row = (delivery.attempt, delivery.device, delivery.model_dump_json(), time.time())
        with self._written() as written:
            written.execute("INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?)", row)

    def chosen(self, choices: RoundChoices) -> None:
        """Why a planning chose whom it chose."""
        with self._written() as written:
            _write_choices(written, choices)

    def observed(self, observation: Observation) -> None:
        """What a closed round showed."""
        with self._written() as written:
            _write_observation(written, observation)

    def close(self) -> None:
        """End the connection, and leave one file: whoever reads it from now on makes none beside it."""
        with self._lock:
            _leave_wal(self._connection)
            self._connection.close()


def _leave_wal(connection: sqlite3.Connection) -> None:
    """Put everything into the one file; readers who are at it have a moment to finish."""
    for _ in range(LEAVING_TRIES):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        except sqlite3.ProgrammingError:
            return  # it was closed before
        except sqlite3.Error:
            mode = ""
        if mode == "delete":
            return
        # SQLite tells nobody when a reader of another process has finished.
        time.sleep(LEAVING_PAUSE_S)


def _key(update: Update) -> tuple[int, str, str]:
    return update.attempt, update.device, update.blob.digest


def _write_choices(written: sqlite3.Connection, choices: RoundChoices) -> None:
    row = (choices.attempt, choices.round, choices.model_dump_json(exclude_defaults=True))
    written.execute("INSERT OR REPLACE INTO choices VALUES (?, ?, ?)", row)


def _write_observation(written: sqlite3.Connection, observation: Observation) -> None:
    row = (observation.round, observation.model_dump_json(exclude_defaults=True))
    written.execute("INSERT OR REPLACE INTO observations VALUES (?, ?)", row)


def _device_rows(devices: Iterable[Device], now: float) -> Iterator[tuple[Any, ...]]:
    """Each device as it is; virtual ones share what describes them, which is then written out once."""
    # What is kept here lives as long as its place in memory is looked up.
    known: dict[int, tuple[Frozen, str]] = {}

    def told(value: Frozen) -> str:
        if id(value) not in known:
            known[id(value)] = value, value.model_dump_json()
        return known[id(value)][1]

    for one in devices:
        yield one.name, one.session, told(one.profile), told(one.data), now
