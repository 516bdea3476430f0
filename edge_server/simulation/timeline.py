"""Virtual time: what is going to happen, in order; time passes only from one event to the next."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Happening = TypeVar("Happening")


class Timeline(Generic[Happening]):
    """Events by their time in seconds; those of one moment in the order in which they were posted."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._count = 0
        self._queue: list[tuple[float, int, Happening]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def post(self, at: float, happening: Happening) -> None:
        """Let it happen at `at`; what is due already happens now."""
        self._count += 1
        heapq.heappush(self._queue, (max(at, self.now), self._count, happening))

    def next(self) -> Happening:
        """Go on to the next event; raises `IndexError` when there is none."""
        self.now, _, happening = heapq.heappop(self._queue)
        return happening

    def clear(self) -> None:
        """Forget all that was going to happen; the time stays."""
        self._queue.clear()
