"""The event list as the page shows it, and the number of its newest change."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from edge_server.observability.dashboard.run_view import Json
from edge_server.rounds.event_entry import EventKind
from edge_server.storage.event_list.file import Row, last_change, read_events
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

MOST_EVENTS = 1000


def events_value(path: Path, kinds: Iterable[str], device: str, after: int) -> Json:
    """What `/api/events` says of the list at `path`: at most `MOST_EVENTS`, those that changed last.

    `last` is the number to ask after the next time. Raises `ConfigError` for a list that cannot be read.
    """
    last = last_change(path)
    rows = read_events(path, kinds=kinds, device=device, after=after, most=MOST_EVENTS)
    return {
        "events": [_value(row) for row in rows],
        "last": max([last, *(row.change for row in rows)]),
        "kinds": [str(kind) for kind in EventKind],
    }


def _value(row: Row) -> Json:
    event = row.event
    return {
        "id": row.id,
        "at": event.at,
        "last_at": event.last_at,
        "kind": str(event.kind),
        "device": event.device,
        "reason": event.reason,
        "text": event.text,
        "count": event.count,
    }


class NewestEvent:
    """The number of the newest change of a list, looked up when its file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._last = 0

    def number(self) -> int:
        """The number now; the one before where the file cannot be read."""
        seen = fingerprint(self._path)
        if seen != self._seen:
            try:
                self._last = last_change(self._path)
            except ConfigError as error:
                log.debug("%s", error)
            self._seen = seen
        return self._last


def fingerprint(path: Path) -> tuple[int, int] | None:
    """When a file was written last and how long it is; None for one that is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
