"""`events.sqlite` in a run folder: a bounded table of events, written and read by any process.

Every row has the number of its last `change`, so that a reader can ask only for later changes.
"""

import logging
import shutil
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from edge_server.rounds.event_entry import AND_MORE, MAX_TEXT, OTHERS, EventKind, RowKey, RunEvent
from schemas.errors import ConfigError

T = TypeVar("T")
MAX_ROWS = 5000  # Most rows of each kind; the oldest are deleted, so a flood of one kind leaves the others
PATIENCE_S = 5.0
SCHEMA = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, change INTEGER NOT NULL, minute INTEGER NOT NULL, kind TEXT NOT NULL,
    device TEXT NOT NULL, subject TEXT NOT NULL, at REAL NOT NULL, last_at REAL NOT NULL, text TEXT NOT NULL,
    reason TEXT NOT NULL, count INTEGER NOT NULL, UNIQUE (minute, kind, device, subject));
CREATE INDEX IF NOT EXISTS by_change ON events (change);
CREATE INDEX IF NOT EXISTS by_kind ON events (kind, id);
"""
UPSERT = """
INSERT INTO events (change, minute, kind, device, subject, at, last_at, text, reason, count)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (minute, kind, device, subject) DO UPDATE SET
    change = excluded.change, last_at = excluded.last_at, text = excluded.text, reason = excluded.reason,
    count = count + excluded.count
"""
TRIM = """
DELETE FROM events WHERE kind = ?1 AND id <= (
    SELECT id FROM events WHERE kind = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)
"""
SELECT = "SELECT id, change, at, kind, text, subject, device, reason, count, last_at FROM events"


@dataclass(frozen=True)
class EventRow:
    """An event in the file, with the numbers of its row and of its last change."""

    id: int
    change: int
    event: RunEvent


class EventFile:
    """The writer. It does not wait for the disk: a power cut may lose the list, a killed process does not."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, check_same_thread=False, timeout=PATIENCE_S)
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.executescript(SCHEMA)

    def add(self, events: Iterable[RunEvent]) -> None:
        rows = list(events)
        with self._connection as written:
            written.execute("BEGIN IMMEDIATE")
            (last,) = written.execute("SELECT coalesce(max(change), 0) FROM events").fetchone()
            written.executemany(UPSERT, [_values(last + n, row) for n, row in enumerate(rows, start=1)])
            written.executemany(TRIM, [(kind, MAX_ROWS) for kind in {row.kind for row in rows}])

    def close(self) -> None:
        self._connection.close()


def read_events(
    path: Path, *, kinds: Iterable[str] = (), device: str = "", after: int = 0, most: int = 500
) -> list[EventRow]:
    """The newest `most` rows that changed after `after`, oldest change first; empty without a file.

    An empty `kinds` or `device` means all. Raises `ConfigError` for a file that cannot be read.
    """
    wanted = list(kinds)
    of_kind = f"AND kind IN ({', '.join('?' * len(wanted))})" if wanted else ""
    of_device = "AND device = ?" if device else ""
    asked = f"{SELECT} WHERE change > ? {of_kind} {of_device} ORDER BY change DESC LIMIT ?"
    arguments = (after, *wanted, *([device] if device else []), most)
    rows = _query_file(path, lambda connection: connection.execute(asked, arguments).fetchall())
    return [_row(values) for values in reversed(rows or [])]


def last_change(path: Path) -> int:
    """The number of the newest change; 0 where there is none."""
    asked = "SELECT coalesce(max(change), 0) FROM events"
    found = _query_file(path, lambda connection: connection.execute(asked).fetchone())
    return int(found[0]) if found else 0


def _query_file(path: Path, ask: Callable[[sqlite3.Connection], T]) -> T | None:
    """The result of a query; None if the file has no table yet."""
    if not path.is_file():
        return None
    try:
        with _open_unchanged(path) as connection:
            made = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone()
            return ask(connection) if made else None
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(
            f"no event list that can be read: {error}", place=path, remedy="remove it to begin another"
        ) from error


@contextmanager
def _open_unchanged(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file unchanged; after a killed writer a copy is opened, with its rollback journal."""
    rollback_journal = path.with_name(f"{path.name}-journal")
    with tempfile.TemporaryDirectory(prefix="edge-events-") as folder:
        try:
            connection = _read_only(path)
        except sqlite3.OperationalError:
            for file in filter(Path.exists, (path, rollback_journal)):
                shutil.copyfile(file, Path(folder) / file.name)
            connection = sqlite3.connect(Path(folder) / path.name)
        with closing(connection):
            yield connection


def _read_only(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=PATIENCE_S)
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def _values(change: int, event: RunEvent) -> tuple[object, ...]:
    minute, kind, device, subject = vars(event.key).values()
    text, last_at = event.text[:MAX_TEXT], max(event.at, event.last_at)
    return change, minute, str(kind), device, subject, event.at, last_at, text, event.reason, event.count


def _row(values: Sequence[Any]) -> EventRow:
    number, change, at, kind, *others = values
    kind = EventKind(kind) if kind in set(EventKind) else EventKind.NOTICE
    return EventRow(number, change, RunEvent(at, kind, *others))


log = logging.getLogger(__name__)

FLUSH_S = 1.0  # Seconds between two writes: a killed process loses the events of this time at most


class EventRecorder:
    """Buffers events and writes them in a thread of its own, which starts with the first event.

    If the list cannot be written, its events are lost, which is logged once; the run continues.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._buffer, self._lock = EventBuffer(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failed = False

    def record(self, event: RunEvent) -> None:
        """Buffer an event; may be called from any thread."""
        with self._lock:
            self._buffer.add(event)
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._write_regularly, name="events", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write the remaining events and end the thread."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def flush(self) -> None:
        with self._lock:
            events = self._buffer.take()
        if not events:
            return
        try:
            with closing(EventFile(self._path)) as file:
                file.add(events)
        except (sqlite3.Error, OSError) as error:
            if not self._failed:
                log.warning("%s: events cannot be kept: %s", self._path, error)
            self._failed = True

    def _write_regularly(self) -> None:
        while not self._over.wait(FLUSH_S):
            self.flush()


MAX_OF_A_DEVICE = 8  # Most rows of one kind and device per minute; its further events share one more row
MAX_OF_A_KIND = 500  # Most rows of one kind per minute; further events are counted in one row of `OTHERS`


class EventBuffer:
    """Counts events by row until they are taken, with a bounded number of rows per minute."""

    def __init__(self) -> None:
        self._waiting: dict[RowKey, RunEvent] = {}
        self._minute = 0
        self._known: set[RowKey] = set()
        self._of_kind: Counter[EventKind] = Counter()
        self._of_device: Counter[tuple[EventKind, str]] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: RunEvent) -> None:
        placed = self._place_event(event)
        before = self._waiting.get(placed.key)
        self._waiting[placed.key] = placed if before is None else before.and_then(placed)

    def take(self) -> list[RunEvent]:
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())

    def _place_event(self, event: RunEvent) -> RunEvent:
        """The event, moved to a shared row if its own would exceed a limit."""
        if event.key.minute != self._minute:
            self._minute = event.key.minute
            self._known, self._of_kind, self._of_device = set(), Counter(), Counter()
        if self._has_room(event.key):
            return event
        more = replace(event, subject=AND_MORE)
        return more if self._is_known(more.key) else replace(more, device=OTHERS)

    def _has_room(self, key: RowKey) -> bool:
        if key in self._known:
            return True
        device = key.kind, key.device
        if key.device and self._of_device[device] >= MAX_OF_A_DEVICE:
            return False
        if self._of_kind[key.kind] >= MAX_OF_A_KIND:
            return False
        self._known.add(key)
        self._of_kind[key.kind] += 1
        self._of_device[device] += 1
        return True

    def _is_known(self, key: RowKey) -> bool:
        """Whether a device that has used up its rows has the shared one, or may have it."""
        if key not in self._known and self._of_kind[key.kind] < MAX_OF_A_KIND:
            self._known.add(key)
            self._of_kind[key.kind] += 1
        return key in self._known
