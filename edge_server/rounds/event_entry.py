"""One entry of a run's event list, and how repetitions of it become one row. Pure values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

MINUTE_S = 60
MOST_TEXT = 300
OTHERS = "(others)"
"""The device of rows that stand for many devices. No device has this name."""
AND_MORE = "(and more)"
"""The subject of the row that stands for whatever else a device did in that minute."""


class EventKind(StrEnum):
    """What an event is about; the page filters by it."""

    JOIN = "join"
    LOSS = "loss"
    REFUSAL = "refusal"
    RENEWAL = "renewal"
    ROUND = "round"
    DELIVERY = "delivery"
    ROLLOUT = "rollout"
    NOTICE = "notice"


@dataclass(frozen=True)
class RowKey:
    """What makes two events one row: the minute since 1970, the kind, the device, what happened."""

    minute: int
    kind: EventKind
    device: str
    subject: str


@dataclass(frozen=True)
class RunEvent:
    """One event, or `count` alike within a minute; times in seconds since 1970, `text` is the newest.

    `subject` tells unlike events of one kind and device apart; an empty `device` means the run itself.
    """

    at: float
    kind: EventKind
    text: str
    subject: str = ""
    device: str = ""
    reason: str = ""
    count: int = 1
    last_at: float = 0.0

    @property
    def key(self) -> RowKey:
        """The row that the event belongs to."""
        return RowKey(int(self.at // MINUTE_S), self.kind, self.device, self.subject)

    def and_then(self, later: RunEvent) -> RunEvent:
        """Both as one."""
        count, last_at = self.count + later.count, max(self.last_at, later.last_at)
        return replace(self, text=later.text, reason=later.reason, count=count, last_at=last_at)
