"""Events that wait to be written: equal ones become one row, and a flood few rows. No clock, no file."""

from collections import Counter
from dataclasses import replace

from edge_server.rounds.event_entry import AND_MORE, OTHERS, EventKind, RowKey, RunEvent

MOST_OF_A_DEVICE = 8
"""Most rows of one kind and device per minute; its further events share one more row."""
MOST_OF_A_KIND = 500
"""Most rows of one kind per minute; further events are counted in one row of `OTHERS`."""


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
        """Count an event in its row."""
        placed = self._placed(event)
        before = self._waiting.get(placed.key)
        self._waiting[placed.key] = placed if before is None else before.and_then(placed)

    def take(self) -> list[RunEvent]:
        """The events since the last call, in order."""
        waiting, self._waiting = self._waiting, {}
        return list(waiting.values())

    def _placed(self, event: RunEvent) -> RunEvent:
        """The event, moved to a shared row if its own would exceed a limit."""
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
        """Whether a device that has used up its rows has the shared one, or may have it."""
        if key not in self._known and self._of_kind[key.kind] < MOST_OF_A_KIND:
            self._known.add(key)
            self._of_kind[key.kind] += 1
        return key in self._known
