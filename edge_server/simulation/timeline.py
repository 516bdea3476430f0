"""A queue of events in virtual time, which advances only from one event to the next."""

import heapq
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Timeline(Generic[Item]):
    """Events ordered by their time in seconds; events of one time keep the order of posting."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._count = 0
        self._queue: list[tuple[float, int, Item]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def post(self, at: float, item: Item) -> None:
        """Add an event at time `at`, or now if that is in the past."""
        self._count += 1
        heapq.heappush(self._queue, (max(at, self.now), self._count, item))

    def next(self) -> Item:
        """Advance to the next event and return it; `IndexError` if there is none."""
        self.now, _, item = heapq.heappop(self._queue)
        return item

    @property
    def next_at(self) -> float:
        """The time of the next event; infinity if there is none."""
        return self._queue[0][0] if self._queue else float("inf")

    def clear(self) -> None:
        """Remove all events; the time stays."""
        self._queue.clear()
