"""The newest entries of the audit log, read on as the file grows."""

import os
import threading
from collections import deque
from pathlib import Path

from edge_server.fleet.page.interfaces import Json
from edge_server.storage.audit_log import AuditEntry

MOST_KNOWN = 5_000
"""Entries that are kept and searched; `edge-server audit` searches all."""
MOST_BYTES = 8_000_000
"""Of a larger log only this much of the end is read."""


class AuditTail:
    """Keeps the end of one log; a line that is damaged is left out."""

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._begin_again()

    def newest(self, *, who: str, what: str, most: int) -> list[Json]:
        """The newest entries with these texts in `who`, and in what was done or its target."""
        with self._lock:
            self._read_on()
            known = list(self._known)
        found: list[Json] = []
        for entry in reversed(known):
            if who in entry.who.lower() and what in f"{entry.what} {entry.target}".lower():
                found.append(entry.model_dump(mode="json", exclude={"previous"}))
            if len(found) >= most:
                break
        return found

    def _begin_again(self) -> None:
        self._known: deque[AuditEntry] = deque(maxlen=MOST_KNOWN)
        self._offset = 0
        self._file: tuple[int, int] | None = None

    def _read_on(self) -> None:
        if not self._path.exists():
            self._begin_again()
            return
        with self._path.open("rb") as file:
            self._check_file(file.fileno())
            file.seek(self._offset)
            whole, end, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(end)
        for line in whole.splitlines():
            self._take(line)

    def _check_file(self, descriptor: int) -> None:
        """Begin at the end of a log that is new or was replaced."""
        status = os.fstat(descriptor)
        file = (status.st_dev, status.st_ino)
        if file != self._file or status.st_size < self._offset:
            self._begin_again()
            self._file, self._offset = file, max(0, status.st_size - MOST_BYTES)

    def _take(self, line: bytes) -> None:
        try:
            self._known.append(AuditEntry.model_validate_json(line))
        except ValueError:
            # The beginning of the end of a large log, or a damaged line, which `audit --verify` reports.
            return
