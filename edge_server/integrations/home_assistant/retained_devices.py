"""Which devices the broker holds retained messages of, and which of them are gone for good."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import Literal


@dataclass
class RetainedDevices:
    """Devices with a retained birth (`born`), with a cleared birth (`revoked`), with a discovery message."""

    born: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)

    def received(self, kind: Literal["birth", "config"], device: str, *, empty: bool) -> None:
        """A birth or a discovery message of a device arrived; an empty one clears it."""
        held = self.born if kind == "birth" else self.published
        (held.discard if empty else held.add)(device)
        if kind == "birth":
            (self.revoked.add if empty else self.revoked.discard)(device)

    def absent(self, present: Set[str], *, settled: bool) -> tuple[frozenset[str], frozenset[str]]:
        """The devices that are gone for good, and published devices that are only absent from this run.

        Once the broker's retained messages are `settled`, a published device without a birth is gone, too.
        """
        absent = self.published - present
        gone = self.revoked | (absent - self.born if settled else set())
        return frozenset(gone), frozenset(absent - gone)
