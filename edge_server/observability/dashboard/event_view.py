"""The JSON value of the event list, and the number of its newest change."""

import logging
from collections.abc import Iterable
from pathlib import Path

from edge_server.observability.dashboard.run_view import Json
from edge_server.rounds.event_entry import EventKind
from edge_server.storage.event_list.file import last_change, read_events
from schemas.errors import ConfigError

log = logging.getLogger(__name__)

MAX_EVENTS = 1000
SHOWN = ("at", "last_at", "kind", "device", "reason", "text", "count")


def events_value(path: Path, kinds: Iterable[str], device: str, after: int) -> Json:
    """The value of `/api/events`: at most `MAX_EVENTS` of the list at `path`, the last changed ones.

    `last` is the value of `after` for the next request. Raises `ConfigError` for an unreadable list.
    """
    last = last_change(path)
    rows = read_events(path, kinds=kinds, device=device, after=after, most=MAX_EVENTS)
    return {
        "events": [{"id": row.id, **{name: getattr(row.event, name) for name in SHOWN}} for row in rows],
        "last": max([last, *(row.change for row in rows)]),
        "kinds": [str(kind) for kind in EventKind],
    }


class NewestEvent:
    """The number of the newest change of a list, read again when its file has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._last = 0

    def number(self) -> int:
        """The current number; the previous one where the file cannot be read."""
        seen = fingerprint(self._path)
        if seen != self._seen:
            try:
                self._last = last_change(self._path)
            except ConfigError as error:
                log.debug("%s", error)
            self._seen = seen
        return self._last


def fingerprint(path: Path) -> tuple[int, int] | None:
    """A file's modification time (ns) and size (bytes); None for a missing file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
