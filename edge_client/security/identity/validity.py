"""How long a certificate is good for, and when to ask for the next one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

RENEW_BELOW = 1 / 3
"""The share of its lifetime that is left when a certificate is to be replaced."""


@dataclass(frozen=True)
class Validity:
    """From when until when, in seconds since 1970."""

    not_before: float
    not_after: float

    @property
    def lifetime(self) -> float:
        """In seconds."""
        return self.not_after - self.not_before

    def left(self, now: float) -> float:
        """Seconds to the end; negative once it is over."""
        return self.not_after - now


def needs_renewal(validity: Validity, now: float) -> bool:
    """Whether less than a third of the lifetime is left."""
    return validity.left(now) < RENEW_BELOW * validity.lifetime


def written(seconds: float) -> str:
    """A moment as people read it, in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
