"""The validity of a certificate, and when it needs renewal."""

from dataclasses import dataclass
from datetime import UTC, datetime

RENEW_BELOW = 1 / 3  # the remaining share of its lifetime at which a certificate is renewed
LAST_S = 253_402_300_799.0


@dataclass(frozen=True)
class Validity:
    """A period, in seconds since 1970."""

    not_before: float
    not_after: float

    @property
    def lifetime(self) -> float:
        return self.not_after - self.not_before

    def seconds_left(self, now: float) -> float:
        """Seconds until the end; negative after it."""
        return self.not_after - now


def needs_renewal(validity: Validity, now: float) -> bool:
    return validity.seconds_left(now) < RENEW_BELOW * validity.lifetime


def format_utc(seconds: float) -> str:
    """A time in seconds since 1970; one after the year 9999 as that year's end."""
    return f"{datetime.fromtimestamp(min(seconds, LAST_S), UTC):%Y-%m-%d %H:%M} UTC"
