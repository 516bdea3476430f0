"""When to request the next certificate and when to start using it: pure decisions, any clock."""

from dataclasses import dataclass, replace
from enum import StrEnum

from edge_client.security.identity.validity import Validity, needs_renewal

SHORTEST_RETRY_S, LONGEST_RETRY_S = 1.0, 3600.0
RETRIES_PER_LIFETIME = 100


class Due(StrEnum):
    """The next action."""

    NOTHING = "nothing"
    ASK = "ask"
    RECONNECT = "reconnect"


@dataclass(frozen=True)
class Renewal:
    """The certificate on disk; `waiting`: the connection still uses the previous one."""

    validity: Validity
    asked_at: float | None = None
    waiting: bool = False

    @property
    def retry_s(self) -> float:
        """Seconds before an unanswered request is repeated."""
        return min(max(self.validity.lifetime / RETRIES_PER_LIFETIME, SHORTEST_RETRY_S), LONGEST_RETRY_S)

    def due(self, now: float, *, connected: bool, idle: bool) -> Due:
        """The next action. Reconnecting waits for idle time: a task matters more than a day's delay."""
        if not connected:
            return Due.NOTHING
        if self.waiting and idle:
            return Due.RECONNECT
        unanswered = self.asked_at is not None and 0 <= now - self.asked_at < self.retry_s
        return Due.ASK if needs_renewal(self.validity, now) and not unanswered else Due.NOTHING

    def asked(self, now: float) -> "Renewal":
        return replace(self, asked_at=now)

    def renewed(self, validity: Validity) -> "Renewal":
        return Renewal(validity, waiting=True)

    def connected(self) -> "Renewal":
        return replace(self, waiting=False)
