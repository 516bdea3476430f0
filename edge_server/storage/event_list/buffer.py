"""Events that wait to be written: alike ones become one row, and a flood becomes few. No clock, no file."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from edge_server.rounds.event_entry import AND_MORE, OTHERS, EventKind, RowKey, RunEvent

MOST_OF_A_DEVICE = 8
"""Rows of one kind and device within a minute; whatever else it did is one more row."""
MOST_OF_A_KIND = 500
"""Rows of one kind within a minute; whatever else happened is counted in one row of `OTHERS`."""


class Gathering:
    """Counts events by row until they are taken; remembers the rows of the newest minute to bound them."""

    def __init__(self) -> None:
        self._waiting: dict[RowKey, RunEvent] = {}
        self._minute = 0
        self._known: set[RowKey] = set()
        self._of_kind: Counter[EventKind] = Counter()
        self._of_device: Counter[tuple[EventKind, str]] = Counter()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, event: RunEvent) -> None:
        """Count an event in its row."""
        placed = self._placed(event)
        before = self._waiting.get(placed.key)
        self._waiting[placed.key] = placed if before is None else before.and_then(placed)

    def take(self) -> list[RunEvent]:
        """What has come since the last time, in order."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())

    def _placed(self, event: RunEvent) -> RunEvent:
        """The event, in a row that there may be."""
        if event.key.minute != self._minute:
            self._minute = event.key.minute
            self._known, self._of_kind, self._of_device = set(), Counter(), Counter()
        if self._has_room(event.key):
            return event
        more = replace(event, subject=AND_MORE)
        if self._is_known(more.key):
            return more
        return replace(more, device=OTHERS)

    def _has_room(self, key: RowKey) -> bool:
        if key in self._known:
            return True
        device = key.kind, key.device
        if key.device and self._of_device[device] >= MOST_OF_A_DEVICE:
            return False
        if self._of_kind[key.kind] >= MOST_OF_A_KIND:
            return False
        self._known.add(key)
        self._of_kind[key.kind] += 1
        self._of_device[device] += 1
        return True

    def _is_known(self, key: RowKey) -> bool:
        """Whether a device that has used up its rows may have the one for the rest."""
        if key not in self._known and self._of_kind[key.kind] < MOST_OF_A_KIND:
            self._known.add(key)
            self._of_kind[key.kind] += 1
        return key in self._known
