"""Virtual time: what happens next, and the clocks that a simulated process reads."""

import hashlib
import heapq
import itertools
import time as real_time
from collections.abc import Callable
from typing import Any

EPOCH = 1_700_000_000.0
"""Seconds since 1970 at virtual time 0."""


class Timeline:
    """Actions in the order of time; those of one moment in the order in which they were posted."""

    def __init__(self) -> None:
        self.now = 0.0
        self._numbers = itertools.count()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._noted = hashlib.sha256()

    def post(self, delay: float, action: Callable[[], None]) -> None:
        """Do `action` in `delay` seconds."""
        heapq.heappush(self._heap, (self.now + max(0.0, delay), next(self._numbers), action))

    def next(self) -> Callable[[], None]:
        """Advance to the next action and return it; `IndexError` if there is none."""
        self.now, _, action = heapq.heappop(self._heap)
        return action

    def note(self, *parts: str | bytes) -> None:
        """Count this in the digest of all that has happened, with the time."""
        for part in (f"{self.now!r}", *parts):
            self._noted.update(part.encode() if isinstance(part, str) else part)

    @property
    def digest(self) -> str:
        """The digest of all that was noted."""
        return self._noted.hexdigest()


class SimulatedTime:
    """Stands in for the module `time`: the clocks of the process that runs.

    `jumps` shift the wall clock of each machine; the monotonic clock never jumps.
    """

    def __init__(self, timeline: Timeline, running: Callable[[], str]) -> None:
        self._timeline, self._running = timeline, running
        self.jumps: dict[str, float] = {}

    def monotonic(self) -> float:
        return self._timeline.now

    perf_counter = monotonic

    def time(self) -> float:
        return EPOCH + self._timeline.now + self.jumps.get(self._running(), 0.0)

    def time_ns(self) -> int:
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        """A simulated process never sleeps."""

    def __getattr__(self, name: str) -> Any:
        return getattr(real_time, name)
