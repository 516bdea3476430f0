"""Events on their way into a run's folder: whoever records one never waits for the disk."""

from __future__ import annotations

import logging
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

from edge_server.rounds.event_entry import RunEvent
from edge_server.storage.event_list.buffer import Gathering
from edge_server.storage.event_list.file import EventFile

log = logging.getLogger(__name__)

FLUSH_S = 1.0
"""Seconds between two writes: what a killed process loses at most."""


class EventRecorder:
    """Gathers events and writes them from a thread of its own, which begins with the first event.

    A list that cannot be written costs its events, never the run: that is logged once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._gathering, self._lock = Gathering(), threading.Lock()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self._failed = False

    def record(self, event: RunEvent) -> None:
        """Take an event; may be called from any thread."""
        with self._lock:
            self._gathering.add(event)
            if self._thread is None and not self._over.is_set():
                self._thread = threading.Thread(target=self._write_now_and_then, name="events", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Write what is still to be written, and end."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()

    def flush(self) -> None:
        """Write what has been gathered."""
        with self._lock:
            events = self._gathering.take()
        if not events:
            return
        try:
            with closing(EventFile(self._path)) as file:
                file.add(events)
        except (sqlite3.Error, OSError) as error:
            if not self._failed:
                log.warning("%s: events cannot be kept: %s", self._path, error)
            self._failed = True

    def _write_now_and_then(self) -> None:
        while not self._over.wait(FLUSH_S):
            self.flush()
