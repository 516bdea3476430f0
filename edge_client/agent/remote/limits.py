"""How often an operator may ask: token buckets, one per diagnostic and one for all of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from schemas.messages.remote import Diagnostic


@dataclass(frozen=True)
class Bucket:
    """At most `burst` at once, and one more every `every_s` seconds; `tokens` were left at `at`."""

    burst: int
    every_s: float
    tokens: float
    at: float = 0.0

    @staticmethod
    def full(burst: int, every_s: float) -> "Bucket":
        """A bucket that nobody has used."""
        return Bucket(burst, every_s, float(burst))

    def filled(self, now: float) -> "Bucket":
        """The bucket at this time."""
        gained = max(0.0, now - self.at) / self.every_s
        return replace(self, tokens=min(float(self.burst), self.tokens + gained), at=now)

    def missing_s(self, now: float) -> float:
        """Seconds until the next token; 0 if there is one."""
        return max(0.0, 1.0 - self.filled(now).tokens) * self.every_s

    def take(self, now: float, count: int = 1) -> "Bucket":
        """The bucket without `count` tokens."""
        filled = self.filled(now)
        return replace(filled, tokens=max(0.0, filled.tokens - count))


@dataclass(frozen=True)
class Limits:
    """The buckets of one device: `kinds` and `total` of collections, `parts` and `refusals` of messages."""

    kinds: Mapping[Diagnostic, Bucket] = field(
        default_factory=lambda: MappingProxyType(
            {
                Diagnostic.DOCTOR: Bucket.full(2, 300.0),
                Diagnostic.BUNDLE: Bucket.full(2, 300.0),
                Diagnostic.LOGS: Bucket.full(6, 20.0),
                Diagnostic.PROFILE: Bucket.full(4, 60.0),
                Diagnostic.CRASH: Bucket.full(4, 60.0),
            }
        )
    )
    total: Bucket = Bucket(12, 20.0, 12.0)
    parts: Bucket = Bucket(64, 0.5, 64.0)
    refusals: Bucket = Bucket(20, 1.0, 20.0)

    def missing_s(self, what: Diagnostic, now: float) -> float:
        """Seconds until this diagnostic may be asked for again; 0 if it may now."""
        return max(self.kinds[what].missing_s(now), self.total.missing_s(now))

    def collected(self, what: Diagnostic, now: float) -> "Limits":
        """The limits after one more collection."""
        kinds = MappingProxyType({**self.kinds, what: self.kinds[what].take(now)})
        return replace(self, kinds=kinds, total=self.total.take(now))

    def refused(self, now: float) -> "Limits":
        """The limits after one more refusal."""
        return replace(self, refusals=self.refusals.take(now))

    def sent(self, count: int, now: float) -> "Limits":
        """The limits after `count` more parts."""
        return replace(self, parts=self.parts.take(now, count))
