"""`alerts.sqlite`: alerts that are not resolved, notifications that are not delivered, and silences.

Every method is a transaction, and any process may open the file. An evaluation's alerts and its
notifications are written at once: a process that is killed neither loses a notification nor sends it twice.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_server.fleet.alerts.alert import Acknowledgement, Alert, Key, Notification, Silence
from edge_server.fleet.alerts.machine import Alerts
from edge_server.storage.sqlite_file import SqliteFile

MAX_WAITING = 1000  # Most notifications that wait for one receiver; the oldest are dropped
MIGRATIONS = (
    """
    CREATE TABLE alerts (
        rule TEXT, kind TEXT, federation TEXT, name TEXT, alert TEXT NOT NULL,
        PRIMARY KEY (rule, kind, federation, name)) WITHOUT ROWID;
    CREATE TABLE outbox (
        number INTEGER PRIMARY KEY AUTOINCREMENT, receiver TEXT NOT NULL, rule TEXT NOT NULL,
        resend INTEGER NOT NULL, notification TEXT NOT NULL, made_at REAL NOT NULL,
        attempts INTEGER NOT NULL DEFAULT 0, due_at REAL NOT NULL, error TEXT NOT NULL DEFAULT '');
    CREATE INDEX by_receiver ON outbox (receiver, number);
    CREATE TABLE silences (
        number INTEGER PRIMARY KEY AUTOINCREMENT, selector TEXT NOT NULL, reason TEXT NOT NULL,
        who TEXT NOT NULL, began_at REAL NOT NULL, until REAL NOT NULL);
    """,
    """
    CREATE TABLE acknowledged (
        rule TEXT, kind TEXT, federation TEXT, name TEXT, who TEXT NOT NULL, at REAL NOT NULL,
        PRIMARY KEY (rule, kind, federation, name)) WITHOUT ROWID;
    """,
)
"""Each brings the file from one `PRAGMA user_version` to the next."""


OF_ALERT = "rule = ? AND kind = ? AND federation = ? AND name = ?"


@dataclass(frozen=True)
class Waiting:
    number: int
    notification: Notification
    made_at: float
    attempts: int
    due_at: float
    error: str


class AlertStore:
    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, MIGRATIONS)

    def close(self) -> None:
        self._file.close()

    def alerts(self) -> dict[Key, Alert]:
        rows = self._file.rows("SELECT alert FROM alerts ORDER BY rule, name")
        return {alert.key: alert for alert in (Alert.model_validate_json(text) for (text,) in rows)}

    def save(
        self, before: Alerts, after: Alerts, notifications: Sequence[Notification], *, now: float
    ) -> None:
        changed = [alert for key, alert in after.items() if before.get(key) != alert]
        gone = [key for key in before if key not in after]
        if not (changed or gone or notifications):
            return
        with self._file.writing() as database:
            for table in ("alerts", "acknowledged"):
                database.executemany(f"DELETE FROM {table} WHERE {OF_ALERT}", gone)
            database.executemany(
                "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?)",
                [(*alert.key, alert.model_dump_json()) for alert in changed],
            )
            for notification in notifications:
                _enqueue(database, notification, now)

    def acknowledgements(self) -> dict[Key, Acknowledgement]:
        rows = self._file.rows("SELECT rule, kind, federation, name, who, at FROM acknowledged")
        return {row[:4]: Acknowledgement(who=row[4], at=row[5]) for row in rows}

    def acknowledge(self, key: Key, who: str, *, now: float) -> bool:
        """Acknowledge an alert until it is resolved; returns whether there is one."""
        with self._file.writing() as database:
            known = database.execute(f"SELECT 1 FROM alerts WHERE {OF_ALERT}", key).fetchone()
            if known:
                database.execute(
                    "INSERT OR REPLACE INTO acknowledged VALUES (?, ?, ?, ?, ?, ?)", (*key, who, now)
                )
            return known is not None

    # --- notifications ---
    def waiting(self, receiver: str | None = None, *, most: int = -1) -> list[Waiting]:
        """The notifications that are not delivered, the oldest first."""
        chosen, values = ("", ()) if receiver is None else ("WHERE receiver = ?", (receiver,))
        rows = self._file.rows(
            "SELECT number, notification, made_at, attempts, due_at, error FROM outbox"
            f" {chosen} ORDER BY number LIMIT ?",
            *values,
            most,
        )
        return [Waiting(row[0], Notification.model_validate_json(row[1]), *row[2:]) for row in rows]

    def first(self, receiver: str) -> Waiting | None:
        return next(iter(self.waiting(receiver, most=1)), None)

    def forget_delivered(self, number: int) -> None:
        """Forget a notification that was delivered or given up."""
        self._file.change("DELETE FROM outbox WHERE number = ?", number)

    def note_failure(self, number: int, error: str, *, due_at: float) -> None:
        """Keep the error of an attempt, and when to try again."""
        query = "UPDATE outbox SET attempts = attempts + 1, error = ?, due_at = ? WHERE number = ?"
        self._file.change(query, error, due_at, number)

    def keep_receivers(self, receivers: Iterable[str]) -> None:
        """Forget the notifications for all other receivers."""
        kept = json.dumps(list(receivers))
        self._file.change("DELETE FROM outbox WHERE receiver NOT IN (SELECT value FROM json_each(?))", kept)

    # --- silences ---
    def silences(self, now: float) -> tuple[Silence, ...]:
        """The silences that have not ended."""
        columns = "number, selector, reason, who, began_at, until"
        rows = self._file.rows(f"SELECT {columns} FROM silences WHERE until > ? ORDER BY number", now)
        return tuple(Silence(**dict(zip(Silence.model_fields, row, strict=True))) for row in rows)

    def silence(self, where: str, reason: str, who: str, *, now: float, until: float) -> Silence:
        with self._file.writing() as database:
            number = database.execute(
                "INSERT INTO silences (selector, reason, who, began_at, until) VALUES (?, ?, ?, ?, ?)",
                (where, reason, who, now, until),
            ).lastrowid
        assert number is not None
        return Silence(number=number, where=where, reason=reason, who=who, began_at=now, until=until)

    def end_silence(self, number: int, *, now: float) -> bool:
        """End a silence now; returns whether there was one."""
        query = "UPDATE silences SET until = ? WHERE number = ? AND until > ?"
        return self._file.change(query, now, number, now)


def _enqueue(database: sqlite3.Connection, notification: Notification, now: float) -> None:
    database.execute(
        "DELETE FROM outbox WHERE receiver = ? AND rule = ? AND resend = 1",
        (notification.receiver, notification.rule),
    )
    row = (notification.receiver, notification.rule, notification.resend, notification.model_dump_json())
    database.execute(
        "INSERT INTO outbox (receiver, rule, resend, notification, made_at, due_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (*row, now, now),
    )
    database.execute(
        "DELETE FROM outbox WHERE receiver = ?1 AND number <= ("
        " SELECT number FROM outbox WHERE receiver = ?1 ORDER BY number DESC LIMIT 1 OFFSET ?2)",
        (notification.receiver, MAX_WAITING),
    )
