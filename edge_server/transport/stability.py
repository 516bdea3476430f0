"""How long a server's connections last: two servers of one name end each other's again and again."""

from dataclasses import dataclass, replace

SETTLED_S = 5.0
"""A connection that lasts as long is a server's own."""
CUTS = 5
"""Connections in a row that end sooner, after which a server gives up unless it has had one of its own."""


@dataclass(frozen=True)
class Stability:
    """The current connection's begin in seconds, whether one has `settled`, and short ones in a row."""

    up_at: float | None = None
    settled: bool = False
    cuts: int = 0

    def up(self, now: float) -> "Stability":
        """The broker has accepted a connection."""
        return replace(self, up_at=now)

    def down(self, now: float) -> "Stability":
        """The connection has ended, or could not be made."""
        if self.up_at is None:
            return self
        if now - self.up_at >= SETTLED_S:
            return Stability(settled=True)
        return replace(self, up_at=None, cuts=self.cuts + 1)

    @property
    def contested(self) -> bool:
        """Whether connections have ended soon several times in a row."""
        return self.cuts >= CUTS
