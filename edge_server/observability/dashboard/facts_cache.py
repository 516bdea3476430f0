"""The facts of a run folder, read again when something in the folder may have changed."""

import logging
import sqlite3
from pathlib import Path

from edge_server.observability.dashboard.event_view import fingerprint
from edge_server.observability.dashboard.run_reader import FolderFacts, read_facts
from edge_server.observability.snapshot import Snapshot
from schemas.errors import EdgeError

log = logging.getLogger(__name__)

REREAD_S = 2.0
"""Minimum seconds between two reads of a folder that this process itself writes."""
WATCHED_FILES = ("history.jsonl", "summary.json", "journal.sqlite", "journal.sqlite-wal")


class FactsCache:
    """The newest facts of the run in `path`; `live` says that this process runs it."""

    def __init__(self, path: Path, *, live: bool) -> None:
        self._path, self._live = path, live
        self._facts: FolderFacts | None = None
        self._read_at, self._read_for = 0.0, object()

    @property
    def newest(self) -> FolderFacts:
        """The facts as last read."""
        assert self._facts is not None
        return self._facts

    def current(self, snapshot: Snapshot | None, monotonic: float) -> FolderFacts:
        """The folder's facts at `monotonic` seconds, where the run is at `snapshot`."""
        if self._live:
            version: object = (snapshot.round, snapshot.phase, len(snapshot.history)) if snapshot else None
            # A round's cost is sent once, so the size of the network must be known before that.
            complete = self._facts is not None and self._facts.parameters is not None
            over = snapshot is not None and snapshot.summary is not None
            late = monotonic >= self._read_at + REREAD_S or over or not complete
            due = version != self._read_for and late
        else:
            version = tuple(map(fingerprint, (self._path / name for name in WATCHED_FILES)))
            due = version != self._read_for
        if self._facts is None or due:
            self._facts = self._read()
            self._read_at, self._read_for = monotonic, version
        return self._facts

    def _read(self) -> FolderFacts:
        """The facts of the folder; the previous ones where it cannot be read at the moment."""
        try:
            return read_facts(self._path, live=self._live)
        except (EdgeError, OSError, sqlite3.Error) as error:
            log.debug("%s cannot be read at the moment: %s", self._path, error)
            return self._facts or FolderFacts(self._path)
