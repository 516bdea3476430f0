"""The journal in SQLite: what was planned, accepted and aggregated, on disk before it is acknowledged.

A server that is killed at any instruction resumes from here: the tasks and accepted updates of the open
round, and the closed rounds, each with its line of history.
"""

import json
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_server.rounds import events, fleet
from edge_server.storage import disk, sqlite_file
from edge_server.strategy.explanations import Observation, RoundChoices
from schemas.base import Frozen
from schemas.errors import ConfigError, Reason
from schemas.messages import Delivery, Update
from schemas.values import Feature

log = logging.getLogger(__name__)

Committed = Callable[[sqlite_file.Changes], None]

FORMAT = 2
LEAVING_TRIES, LEAVING_PAUSE_S = 20, 0.05
"""Attempts to close the write-ahead log while other processes read, and the seconds between them."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS run (
    run TEXT NOT NULL, federation TEXT NOT NULL, began_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS classes (names TEXT NOT NULL, agreed_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS columns (said TEXT NOT NULL, agreed_at REAL NOT NULL);
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
CREATE TABLE IF NOT EXISTS untested (round INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS deliveries (
    attempt INTEGER NOT NULL, device TEXT NOT NULL, message TEXT NOT NULL, at REAL NOT NULL,
    PRIMARY KEY (attempt, device));
CREATE TABLE IF NOT EXISTS epochs (epoch INTEGER PRIMARY KEY, holder TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS choices (attempt INTEGER PRIMARY KEY, round INTEGER NOT NULL, said TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS observations (round INTEGER PRIMARY KEY, said TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS undone (
    round INTEGER PRIMARY KEY, attempt INTEGER NOT NULL, state_sha256 TEXT NOT NULL, left_out TEXT NOT NULL,
    why TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS ends (outcome TEXT NOT NULL, detail TEXT NOT NULL, at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS restored (attempt INTEGER NOT NULL, epoch INTEGER NOT NULL, at REAL NOT NULL);
"""


def unknown_format(path: Path, found: int) -> ConfigError:
    return ConfigError(
        f"a journal of format {found}; this program reads format {FORMAT}",
        place=path,
        remedy="continue with the version of edge-server that began the run",
    )


@dataclass(frozen=True)
class AggregatedUpdate:
    """An update that was aggregated: its device, its attempt, and by how many rounds it was late."""

    device: str
    attempt: int
    digest: str
    staleness: int


@dataclass(frozen=True)
class UndoneRound:
    """A closed round that was undone; `state_sha256` is the digest of the model that the next one began with.

    Plannings up to `attempt` are void; the devices `left_out` are excluded from now on.
    """

    round: int
    attempt: int
    state_sha256: str
    left_out: tuple[str, ...]
    why: str


class Journal:
    """One connection in WAL mode; usable from any thread.

    A journal that is not `durable` does not wait for the disk: it outlives its process, but not a power cut.
    It has no tasks, its largest part, as a simulation resumes from its own checkpoint.
    """

    def __init__(self, path: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._together: list[tuple[Any, ...]] | None = None
        self._lock = threading.Lock()
        self._committed: Committed | None = None
        self._path = path
        self._connection = sqlite3.connect(path, check_same_thread=False)
        (found,) = self._connection.execute("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            self._connection.close()
            raise unknown_format(path, found)
        with disk.naming(path):
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute(f"PRAGMA synchronous={'FULL' if durable else 'OFF'}")
            # One transaction, since each waits for the disk.
            self._connection.executescript(f"BEGIN;{SCHEMA}PRAGMA user_version={FORMAT};COMMIT;")

    @contextmanager
    def writing(self) -> Iterator[sqlite_file.RecordedConnection]:
        with disk.naming(self._path), self._lock:
            recorded = sqlite_file.RecordedConnection(self._connection)
            with self._connection:
                yield recorded
            if self._committed is not None and recorded.changes:
                self._committed(recorded.changes)

    def copy_to(self, path: Path, committed: Committed) -> None:
        """Write a copy of the journal, and call `committed` with the changes of every later transaction.

        It is called after the transaction is on disk, in the order of transactions, and must be quick.
        """
        with self._lock:
            with closing(sqlite3.connect(path)) as copy:
                self._connection.backup(copy)
            self._committed = committed

    def copied_no_more(self) -> None:
        """Call nothing any more after transactions."""
        with self._lock:
            self._committed = None

    def begun(self, run: str, federation: str) -> None:
        with self.writing() as written:
            written.execute("DELETE FROM run")
            written.execute("INSERT INTO run VALUES (?, ?, ?)", (run, federation, time.time()))

    def write_epoch(self, epoch: int, holder: str) -> int:
        """Write that a server, in words, goes on with the run in this epoch; returns the run's first one."""
        with self.writing() as written:
            written.execute("INSERT OR IGNORE INTO epochs VALUES (?, ?, ?)", (epoch, holder, time.time()))
            (first,) = written.execute("SELECT min(epoch) FROM epochs").fetchone()
        return int(first)

    def write_restoration(self, attempt: int, *, epochs: int, at: float) -> None:
        """Write that the run was restored from a backup at `at`; plannings go on above the number `attempt`.

        The next server's epoch is later than the last one by `epochs` at least.
        """
        with self.writing() as written:
            (last,) = written.execute("SELECT max(epoch) FROM epochs").fetchone()
            if last is None:
                written.execute("INSERT INTO epochs VALUES (1, '', ?)", (at,))
            epoch = (last or 1) + epochs
            written.execute("INSERT INTO epochs VALUES (?, ?, ?)", (epoch, "restored from a backup", at))
            written.execute("INSERT INTO restored VALUES (?, ?, ?)", (attempt, epoch, at))

    def write_agreed_lists(self, classes: Iterable[str], columns: Iterable[Feature] = ()) -> None:
        """Write the federation's lists of classes and columns."""
        said = [column.model_dump() for column in columns]
        with self.writing() as written:
            for table, values in (("classes", list(classes)), ("columns", said)):
                written.execute(f"DELETE FROM {table}")
                written.execute(f"INSERT INTO {table} VALUES (?, ?)", (json.dumps(values), time.time()))

    def write_planning(
        self,
        attempt: int,
        round_number: int,
        assignments: Mapping[str, events.Assignment],
        *,
        devices: Iterable[fleet.Device] = (),
        clients: Mapping[str, tuple[int, int]] | None = None,
        needed: int | None = None,
        rng: Iterable[int] = (),
        deliver: bool = False,
        choices: RoundChoices | None = None,
    ) -> None:
        """Write a planning: the present devices, their tasks, and the reasons of the choice."""
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
        with self.writing() as written:
            written.execute("INSERT OR REPLACE INTO plannings VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
            written.executemany(
                "INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?, ?)", _device_rows(devices, now)
            )
            if choices is not None:
                reasons = (choices.attempt, choices.round, choices.model_dump_json(exclude_defaults=True))
                written.execute("INSERT OR REPLACE INTO choices VALUES (?, ?, ?)", reasons)
            if self._durable:
                written.executemany(
                    "INSERT OR REPLACE INTO tasks VALUES (?, ?, ?, ?)",
                    [
                        (device, attempt, assignment.task.model_dump_json(), assignment.max_bytes)
                        for device, assignment in assignments.items()
                    ],
                )

    def write_examined(
        self,
        update: Update,
        *,
        reason: str | None,
        ratio: float | None = None,
        norms: Mapping[str, float] | None = None,
    ) -> None:
        """Write that an update was accepted (`reason` is None) or refused; `ratio` is its task's.

        `norms` are those of its groups, as far as they were computed.
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
            self.write_examined_rows([row])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Write the updates examined in the block in one transaction at its end; none if the block raises."""
        rows: list[tuple[Any, ...]] = []
        self._together = rows
        try:
            yield
        finally:
            self._together = None
        self.write_examined_rows(rows)

    def write_examined_rows(self, rows: Iterable[tuple[Any, ...]]) -> None:
        with self.writing() as written:
            values = ", ".join("?" * 11)
            written.executemany(f"INSERT OR REPLACE INTO updates VALUES ({values})", rows)

    def struck(self, device: str, round_number: int, reason: str) -> None:
        """Write a refusal that counts against a device."""
        with self.writing() as written:
            written.execute("INSERT INTO strikes VALUES (?, ?, ?)", (device, round_number, reason))

    def write_closed_round(
        self,
        round_number: int,
        state_sha256: str,
        *,
        updates: Iterable[AggregatedUpdate],
        over: Iterable[str],
        record: str,
        traffic: Mapping[str, Any],
        observation: Observation | None = None,
        refused: Iterable[tuple[Update, Reason]] = (),
        tested: bool = True,
    ) -> None:
        """Write that a round was aggregated into the model of that digest, and delete the tasks of `over`.

        `refused` are accepted updates that the comparison with all others refused; those of other devices in
        `over` came too late. `record` is the line of history, without the figures of a test unless `tested`;
        `traffic` are the counts of the run so far.
        """
        counted, over = list(updates), list(over)
        made_of = json.dumps([[u.device, u.attempt, u.digest, u.staleness] for u in counted])
        late = self._open_attempts(sorted(set(over) - {update.device for update in counted}))
        with self.writing() as written:
            written.execute(
                "INSERT OR REPLACE INTO rounds VALUES (?, ?, ?, ?, ?, ?)",
                (round_number, state_sha256, made_of, record, json.dumps(traffic), time.time()),
            )
            written.execute("DELETE FROM untested WHERE round = ?", (round_number,))
            if not tested:
                written.execute("INSERT INTO untested VALUES (?)", (round_number,))
            written.executemany(
                "UPDATE updates SET reason = ? WHERE reason IS NULL AND attempt = ? AND device = ?",
                [(Reason.STALE_ROUND, attempt, device) for attempt, device in late],
            )
            written.executemany("DELETE FROM tasks WHERE device = ?", [(device,) for device in over])
            written.executemany(
                "UPDATE updates SET reason = ? WHERE attempt = ? AND device = ? AND digest = ?",
                [(reason, *_key(update)) for update, reason in refused],
            )
            if observation is not None:
                seen = (observation.round, observation.model_dump_json(exclude_defaults=True))
                written.execute("INSERT OR REPLACE INTO observations VALUES (?, ?)", seen)

    def _open_attempts(self, devices: Iterable[str]) -> list[tuple[int, str]]:
        """The attempts of the open tasks of these devices, with their names."""
        asked = "SELECT attempt, device FROM tasks WHERE device = ?"
        with self._lock:
            return [row for name in devices for row in self._connection.execute(asked, (name,))]

    def write_test(self, round_number: int, record: str) -> None:
        with self.writing() as written:
            written.execute("UPDATE rounds SET record = ? WHERE round = ?", (record, round_number))
            written.execute("DELETE FROM untested WHERE round = ?", (round_number,))

    def undone(self, given_up: UndoneRound, reputation: Iterable[tuple[str, int, str]]) -> None:
        """Write that a closed round was undone, with rows for the table of strikes."""
        out = json.dumps(given_up.left_out)
        row = (given_up.round, given_up.attempt, given_up.state_sha256, out, given_up.why, time.time())
        with self.writing() as written:
            written.execute("INSERT OR REPLACE INTO undone VALUES (?, ?, ?, ?, ?, ?)", row)
            written.executemany("INSERT INTO strikes VALUES (?, ?, ?)", reputation)

    def has_accepted(self, update: Update) -> bool:
        """Whether this update was accepted, and has not come too late."""
        with self._lock:
            row = self._connection.execute(
                "SELECT 1 FROM updates WHERE attempt = ? AND device = ? AND digest = ? AND reason IS NULL",
                _key(update),
            ).fetchone()
        return row is not None

    def norms(self, update: Update) -> dict[str, float]:
        """The norms of an update that was examined; empty if they are missing or cannot be read."""
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

    def write_delivery(self, delivery: Delivery) -> None:
        row = (delivery.attempt, delivery.device, delivery.model_dump_json(), time.time())
        with self.writing() as written:
            written.execute("INSERT OR REPLACE INTO deliveries VALUES (?, ?, ?, ?)", row)

    def write_end(self, outcome: str, detail: str) -> None:
        """Write that the run is over; devices receive the end after that."""
        with self.writing() as written:
            written.execute("INSERT INTO ends VALUES (?, ?, ?)", (outcome, detail, time.time()))

    def close(self) -> None:
        """Close the connection and leave a single file without a write-ahead log."""
        with self._lock:
            _leave_wal(self._connection)
            self._connection.close()


def _leave_wal(connection: sqlite3.Connection) -> None:
    """Merge the write-ahead log into the file, waiting briefly for readers to finish."""
    for _ in range(LEAVING_TRIES):
        try:
            (mode,) = connection.execute("PRAGMA journal_mode=DELETE").fetchone()
        except sqlite3.ProgrammingError:
            return  # it was closed before
        except sqlite3.Error:
            mode = ""
        if mode == "delete":
            return
        # SQLite does not signal when a reader in another process finishes.
        time.sleep(LEAVING_PAUSE_S)


def _key(update: Update) -> tuple[int, str, str]:
    return update.attempt, update.device, update.blob.digest


def _device_rows(devices: Iterable[fleet.Device], now: float) -> Iterator[tuple[Any, ...]]:
    """A row per device; descriptions that virtual devices share are encoded once."""
    # The values are kept so that their ids stay valid.
    known: dict[int, tuple[Frozen, str]] = {}

    def encode_once(value: Frozen) -> str:
        if id(value) not in known:
            known[id(value)] = value, value.model_dump_json()
        return known[id(value)][1]

    for device in devices:
        yield device.name, device.session, encode_once(device.profile), encode_once(device.data), now
