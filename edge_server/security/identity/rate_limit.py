"""How often each sender may ask: a bucket of requests that fills again with time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MOST = 8.0
REFILL_S = 15.0
MOST_SENDERS = 10_000


@dataclass(frozen=True)
class RequestAllowance:
    """For each sender how many requests were left, and when that was; `now` is any clock in seconds.

    Senders are those that the broker has let in under their own name, so they cannot invent others.
    """

    left: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def spend(self, sender: str, now: float) -> RequestAllowance | None:
        """Take one request; None where none is left."""
        left, since = self.left.get(sender, (MOST, now))
        full = min(MOST, left + (now - since) / REFILL_S)
        if full < 1:
            return None
        others = {name: about for name, about in self.left.items() if name != sender}
        if len(others) >= MOST_SENDERS:
            del others[next(iter(others))]
        return RequestAllowance({**others, sender: (full - 1, now)})
