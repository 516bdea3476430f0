"""Fair shares of time between federations, by weights: start-time fair queueing.

Each federation has a tag that grows by the time that its jobs run, divided by their weight; who waits with
the smallest tag is next. A federation that had nothing to run starts at the tag of the newest start, so
that idle time is no credit. Goyal et al., "Start-time Fair Queueing", SIGCOMM 1996.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Shares:
    """The tag of each federation in weighted seconds, and that of the newest start."""

    tags: Mapping[str, float] = field(default_factory=dict)
    newest: float = 0.0

    def tag(self, federation: str) -> float:
        """The tag with which a run of this federation would start; the smallest is next."""
        return max(self.tags.get(federation, 0.0), self.newest)

    def started(self, federation: str) -> "Shares":
        """A run of this federation starts."""
        tag = self.tag(federation)
        return Shares({**self.tags, federation: tag}, tag)

    def used(self, federation: str, seconds: float, weight: float) -> "Shares":
        """Its jobs have run for this number of seconds."""
        tag = self.tags.get(federation, 0.0) + seconds / weight
        return replace(self, tags={**self.tags, federation: tag})
