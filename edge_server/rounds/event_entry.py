"""One entry of a run's event list, and how its repetitions become one row. Pure values."""

from dataclasses import dataclass, replace
from enum import StrEnum

MINUTE_S = 60
MAX_TEXT = 300
OTHERS = "(others)"  # The device name of rows for many devices; no device has this name
AND_MORE = "(and more)"  # The subject of the row for all further events of a device in that minute


class EventKind(StrEnum):
    """The kind of an event; the page filters by it."""

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
    """Events with the same key share a row: minute since 1970, kind, device, subject."""

    minute: int
    kind: EventKind
    device: str
    subject: str


@dataclass(frozen=True)
class RunEvent:
    """`count` equal events within a minute; times in seconds since 1970, `text` is that of the newest.

    `subject` distinguishes events of one kind and device; an empty `device` means the run itself.
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
        return RowKey(int(self.at // MINUTE_S), self.kind, self.device, self.subject)

    def and_then(self, later: "RunEvent") -> "RunEvent":
        count, last_at = self.count + later.count, max(self.last_at, later.last_at)
        return replace(self, text=later.text, reason=later.reason, count=count, last_at=last_at)
