"""Recording events without waiting for the disk."""

import logging
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from edge_server.rounds.event_entry import AND_MORE, OTHERS, EventKind, RowKey, RunEvent
from edge_server.storage.event_list.file import EventFile

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
