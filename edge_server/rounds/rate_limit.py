"""A limit on how often something is done in each window of time."""

from __future__ import annotations


class RateLimit:
    """At most `most` times per `seconds`; the caller passes the time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._since, self._count = 0.0, 0

    def allows(self, now: float) -> bool:
        """Whether it may be done once more at `now`, in seconds; counts it."""
        if now >= self._since + self._seconds:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= self._most
