"""What a page is told next: from what it was told last and what there is now, without a queue in between.

Each row of the fleet carries the version in which it changed. A page is a cursor: whoever reads slowly asks
later, gets the newest of each row once, and nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edge_server.observability.dashboard.fleet_view import FleetRow
from edge_server.observability.dashboard.run_view import Json, steady

QUIET_S = 5.0
"""A row in which nothing but such figures has moved is sent no sooner than so long after it was sent last."""
QUIET = ("seen_at", "celsius", "memory_bytes", "memory_free_bytes", "battery")
ALWAYS_MOVES = "now"


@dataclass(frozen=True)
class VersionedRow:
    """A row of the fleet as it is told, the version in which it changed, and when that was."""

    version: int
    changed_at: float
    row: FleetRow


@dataclass(frozen=True)
class PageState:
    """All that a page may be told at one moment; `run_version` is the one in which the run changed.

    `gone` are devices that are no longer there, with the version in which they went.
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
    """What one page has been told: everything up to `version`, rounds up to `round`, perhaps the end."""

    version: int = 0
    round: int = 0
    ended: bool = False


@dataclass(frozen=True)
class Event:
    """One event for a page."""

    name: str
    data: Mapping[str, Any]


def next_page_state(
    before: PageState | None, run: Json, rows: Iterable[FleetRow], rounds: Sequence[Json], *, now: float
) -> PageState:
    """The next version of what there is; `now` in seconds."""
    version = 1 if before is None else before.version + 1
    run = run if before is None else steady(before.run, run)
    run_changed = before is None or _without_now(before.run) != _without_now(run)
    old_rows = {} if before is None else before.rows
    fresh = {row.device: _versioned(old_rows.get(row.device), row, version, now) for row in rows}
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
    """What to tell a page that has been told of `cursor`, and what it then has been told of."""
    told: list[Event] = []
    if shown.run_version > cursor.version:
        told.append(Event("run", shown.run))
    if fleet := _fleet(cursor, shown):
        told.append(fleet)
    fresh = [line for line in shown.rounds if line["round"] > cursor.round]
    told += [Event("round", line) for line in fresh]
    ends = shown.outcome is not None and not cursor.ended
    if ends:
        told.append(Event("end", {"outcome": shown.outcome}))
    last = max((line["round"] for line in fresh), default=cursor.round)
    return Cursor(shown.version, last, cursor.ended or ends), told


def _fleet(cursor: Cursor, shown: PageState) -> Event | None:
    changed = [vars(one.row) for one in shown.rows.values() if one.version > cursor.version]
    gone = [name for name, version in shown.gone.items() if version > cursor.version]
    full = cursor.version == 0
    if not (changed or gone or full):
        return None
    return Event("fleet", {"devices": changed, "gone": [] if full else gone, "full": full})


def _versioned(before: VersionedRow | None, row: FleetRow, version: int, now: float) -> VersionedRow:
    if before is None:
        return VersionedRow(version, now, row)
    if before.row == row:
        return before
    quiet = {name: getattr(before.row, name) for name in QUIET}
    if now < before.changed_at + QUIET_S and replace(row, **quiet) == before.row:
        return before
    return VersionedRow(version, now, row)


def _without_now(run: Json) -> Json:
    return {key: value for key, value in run.items() if key != ALWAYS_MOVES}
