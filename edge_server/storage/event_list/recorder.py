"""Recording events without waiting for the disk."""

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from edge_server.rounds.event_entry import RunEvent
from edge_server.storage.event_list.buffer import EventBuffer
from edge_server.storage.event_list.file import EventFile

log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""Seconds between two writes: a killed process loses the events of this time at most."""


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
        """Write the buffered events."""
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
