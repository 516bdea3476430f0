"""How often something may be done: so many times in each window of time."""

from __future__ import annotations


class RateLimit:
    """At most `most` times in `seconds`; the clock is the caller's."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._since, self._count = 0.0, 0

    def allows(self, now: float) -> bool:
        """Whether it may be done once more at `now`, in seconds; counts it if so."""
        if now >= self._since + self._seconds:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= self._most
