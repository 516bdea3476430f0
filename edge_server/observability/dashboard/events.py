"""The next events of a page, computed from its cursor and the current page state, without queues.

Each row of the fleet carries the version in which it changed. A page is a cursor into the versions: a slow
reader gets the newest value of each row once, and nothing waits for it.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from edge_server.observability.dashboard.fleet_view import FleetRow
from edge_server.observability.dashboard.run_view import Json, keep_times
from edge_server.rounds.event_entry import EventKind
from edge_server.storage.event_list import last_change, read_events
from schemas.base import fields_of
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
        "events": [{"id": row.id, **fields_of(row.event, *SHOWN)} for row in rows],
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


QUIET_S = 5.0  # Minimum seconds between two sends of a row in which only `QUIET` fields changed
QUIET = ("seen_at", "celsius", "memory_bytes", "memory_free_bytes", "battery")
ALWAYS_MOVES = "now"


@dataclass(frozen=True)
class VersionedRow:
    """A row of the fleet, and the version and time (seconds) of its last change."""

    version: int
    changed_at: float
    row: FleetRow


@dataclass(frozen=True)
class PageState:
    """Everything that pages show at one moment; `run_version` is the version in which `run` changed.

    `gone` maps devices that left the fleet to the version in which they left.
    """

    version: int
    run: Json
    run_version: int
    rows: Mapping[str, VersionedRow] = field(default_factory=dict)
    gone: Mapping[str, int] = field(default_factory=dict)
    rounds: Sequence[Json] = ()

    @property
    def outcome(self) -> str | None:
        """How the run ended; None while it goes on."""
        outcome: str | None = self.run["outcome"]
        return outcome


@dataclass(frozen=True)
class Cursor:
    """What one page has received: everything up to `version`, rounds up to `round`, the end if `ended`."""

    version: int = 0
    round: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Event:
    name: str
    data: Mapping[str, Any]


def next_page_state(
    before: PageState | None, run: Json, rows: Iterable[FleetRow], rounds: Sequence[Json], *, now: float
) -> PageState:
    """The version after `before`; `now` in seconds."""
    version = 1 if before is None else before.version + 1
    run = run if before is None else keep_times(before.run, run)
    run_changed = before is None or _without_now(before.run) != _without_now(run)
    old_rows = {} if before is None else before.rows
    fresh = {row.device: _make_versioned_row(old_rows.get(row.device), row, version, now) for row in rows}
    gone = {} if before is None else {name: at for name, at in before.gone.items() if name not in fresh}
    return PageState(
        version=version,
        run=run,
        run_version=version if before is None or run_changed else before.run_version,
        rows=fresh,
        gone={**gone, **{name: version for name in old_rows if name not in fresh}},
        rounds=rounds,
    )


def events(cursor: Cursor, shown: PageState) -> tuple[Cursor, list[Event]]:
    """The events to send to a page at `cursor`, and its cursor after them."""
    found: list[Event] = []
    if shown.run_version > cursor.version:
        found.append(Event("run", shown.run))
    if fleet := _fleet(cursor, shown):
        found.append(fleet)
    fresh = [line for line in shown.rounds if line["round"] > cursor.round]
    found += [Event("round", line) for line in fresh]
    ends = shown.outcome is not None and not cursor.ended
    if ends:
        found.append(Event("end", {"outcome": shown.outcome}))
    last = max((line["round"] for line in fresh), default=cursor.round)
    return Cursor(shown.version, last, cursor.ended or ends), found


def _fleet(cursor: Cursor, shown: PageState) -> Event | None:
    changed = [vars(kept.row) for kept in shown.rows.values() if kept.version > cursor.version]
    gone = [name for name, version in shown.gone.items() if version > cursor.version]
    full = cursor.version == 0
    if not (changed or gone or full):
        return None
    return Event("fleet", {"devices": changed, "gone": [] if full else gone, "full": full})


def _make_versioned_row(before: VersionedRow | None, row: FleetRow, version: int, now: float) -> VersionedRow:
    if before is None:
        return VersionedRow(version, now, row)
    if before.row == row:
        return before
    quiet = fields_of(before.row, *QUIET)
    if now < before.changed_at + QUIET_S and replace(row, **quiet) == before.row:
        return before
    return VersionedRow(version, now, row)


def _without_now(run: Json) -> Json:
    return {key: value for key, value in run.items() if key != ALWAYS_MOVES}
