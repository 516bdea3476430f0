"""An alert, a silence and a notification as values, as they are stored and sent."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from urllib.parse import quote

from pydantic import Field

from edge_server.fleet.alerts.rules import Key
from edge_server.fleet.settings.alert_kinds import Severity
from schemas.base import Frozen
from schemas.selectors import parse_where


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
        return self.rule, self.subject.kind, self.subject.federation, self.subject.name

    @property
    def place(self) -> str:
        """Where the service's page shows what the alert is about."""
        match self.subject.kind:
            case "device":
                return (
                    f"#devices/{quote(self.subject.federation, safe='')}/{quote(self.subject.name, safe='')}"
                )
            case "job":
                return f"#jobs/{quote(self.subject.name, safe='')}"
            case _:
                return "#alerts"

    def state(
        self, silences: "Iterable[Silence]", acknowledged: "Mapping[Key, Acknowledgement]", now: float
    ) -> str:
        if is_silenced(self.subject, silences, now):
            return "silenced"
        return "acknowledged" if self.key in acknowledged else f"{self.phase}"


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


def is_silenced(subject: AlertSubject, silences: Iterable[Silence], now: float) -> bool:
    return any(silence.covers(subject, now) for silence in silences)


class Acknowledgement(Frozen):
    """Somebody has seen an alert: until it is resolved, nobody hears of it again."""

    who: str
    at: float


class Notification(Frozen):
    """The alerts of one rule for one receiver: some fire, others are resolved.

    `page` is the address of the service's page, if it is known. A `resend` tells nothing new, so that a later
    notification replaces it while it waits.
    """

    receiver: str
    rule: str
    severity: Severity
    at: float
    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    resend: bool = False
    test: bool = False
    page: str = ""

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return (*self.firing, *self.resolved)
