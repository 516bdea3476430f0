"""A rate limit per sender: a token bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 8.0
REFILL_S = 15.0
MOST_SENDERS = 10_000


@dataclass(frozen=True)
class RequestAllowance:
    """For each sender the remaining requests, and when that was; `now` is any clock in seconds.

    The broker has authenticated the senders, so they cannot invent names.
    """

    left: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def spend(self, sender: str, now: float) -> RequestAllowance | None:
        """Take one request; None if none is left."""
        left, since = self.left.get(sender, (MOST, now))
        full = min(MOST, left + (now - since) / REFILL_S)
        if full < 1:
            return None
        others = {name: about for name, about in self.left.items() if name != sender}
        if len(others) >= MOST_SENDERS:
            del others[next(iter(others))]
        return RequestAllowance({**others, sender: (full - 1, now)})
