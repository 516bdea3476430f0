"""An alert, a silence and a notification as values, as they are stored and sent."""

from collections.abc import Mapping
from enum import StrEnum

from pydantic import Field

from edge_server.config.alerts import Severity
from edge_server.observability.alerts.rules import Key
from schemas.base import Frozen
from schemas.labels import parse_where


class Phase(StrEnum):
    """Pending until the state has lasted, then firing; clearing when the state is over, until resolved."""

    PENDING = "pending"
    FIRING = "firing"
    CLEARING = "clearing"


class AlertSubject(Frozen):
    """What an alert is about; times are seconds since 1970."""

    kind: str
    federation: str
    name: str
    labels: Mapping[str, str] = Field(default_factory=dict)
    site: str = ""
    note: str = ""
    seen_at: float | None = None
    certificate_until: float | None = None


class Alert(Frozen):
    """An alert that is not resolved.

    `since` is when its state began, `fired_at` when it was raised, `absent_since` when the state ended.
    `notified` says when each receiver was last notified, in seconds since 1970.
    """

    rule: str
    severity: Severity
    subject: AlertSubject
    text: str
    remedy: str
    since: float
    phase: Phase = Phase.PENDING
    fired_at: float | None = None
    absent_since: float | None = None
    notified: Mapping[str, float] = Field(default_factory=dict)

    @property
    def key(self) -> Key:
        """The fingerprint: rule and subject."""
        return self.rule, self.subject.kind, self.subject.federation, self.subject.name


class Silence(Frozen):
    """Alerts of the devices that `where` chooses are not sent before `until` (seconds since 1970)."""

    number: int
    where: str
    reason: str
    who: str
    began_at: float
    until: float

    def covers(self, subject: AlertSubject, now: float) -> bool:
        """Whether alerts about the subject are not sent now."""
        return self.began_at <= now < self.until and parse_where(self.where).matches(subject.labels)


class Notification(Frozen):
    """The alerts of one rule for one receiver: some fire, others are resolved.

    A `resend` tells nothing new, so that a later notification replaces it while it waits.
    """

    receiver: str
    rule: str
    severity: Severity
    at: float
    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    resend: bool = False
    test: bool = False

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """All alerts."""
        return (*self.firing, *self.resolved)
