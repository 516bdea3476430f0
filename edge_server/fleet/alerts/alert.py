"""An alert, a silence and a notification as values, as they are stored and sent."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import quote

from pydantic import Field

from edge_server.fleet.settings import alert_kinds
from edge_server.storage.inventory.records import InventoryDevice
from schemas.base import Frozen
from schemas.selectors import parse_where

# What rules see of devices, runs and jobs at one moment, and what they find. Pure.


@dataclass(frozen=True)
class Facts:
    """Everything at one moment. In the `unheard` federations nobody knows which devices are silent."""

    subjects: tuple[alert_kinds.Subject, ...] = ()
    unheard: frozenset[str] = frozenset()


def gather(
    devices: Iterable[InventoryDevice],
    incidents: Iterable[alert_kinds.Incident],
    *,
    unheard: frozenset[str] = frozenset(),
) -> Facts:
    """The facts by subject; revoked devices, and incidents of unknown ones, are left out."""
    of_devices: dict[tuple[str, str], list[alert_kinds.Incident]] = defaultdict(list)
    others: dict[tuple[str, str, str], list[alert_kinds.Incident]] = defaultdict(list)
    for incident in incidents:
        if incident.kind in (alert_kinds.IncidentKind.REFUSAL, alert_kinds.IncidentKind.TRIAL):
            of_devices[incident.federation, incident.subject].append(incident)
        else:
            kind = "run" if incident.kind is alert_kinds.IncidentKind.ROUND else "job"
            others[kind, incident.federation, incident.subject].append(incident)
    boards = tuple(_of_device(device, of_devices) for device in devices if device.revoked_at is None)
    rest = tuple(
        alert_kinds.Subject(
            kind, federation, name, {"federation": federation, kind: name}, incidents=tuple(found)
        )
        for (kind, federation, name), found in others.items()
    )
    return Facts((*boards, *rest), unheard)


def _of_device(
    device: InventoryDevice, found: Mapping[tuple[str, str], list[alert_kinds.Incident]]
) -> alert_kinds.Subject:
    incidents = tuple(found.get((device.federation, device.device), ()))
    return alert_kinds.Subject(
        "device", device.federation, device.device, device.selectable, device, incidents
    )


Key = tuple[str, str, str, str]
"""The fingerprint of an alert: its rule, and the kind, federation and name of its subject."""


@dataclass(frozen=True)
class Evaluation:
    """What the rules found; alerts of a rule and federation in `unknown` stay as they are."""

    findings: Mapping[Key, tuple[alert_kinds.Finding, alert_kinds.Subject]]
    unknown: frozenset[tuple[str, str]] = frozenset()


def evaluate(rules: tuple[alert_kinds.Rule, ...], facts: Facts, now: float) -> Evaluation:
    """Evaluate every rule for every subject that it chooses."""
    unknown = frozenset(
        (rule.name, federation)
        for rule in rules
        if alert_kinds.RULE_KINDS[rule.when].of_presence
        for federation in facts.unheard
    )
    findings = {}
    for rule in rules:
        find = alert_kinds.RULE_KINDS[rule.when].find
        for subject in facts.subjects:
            if (rule.name, subject.federation) in unknown:
                continue
            finding = find(subject, rule, now)
            if finding is not None and rule.where.matches(subject.labels):
                key = (rule.name, subject.kind, subject.federation, subject.name)
                findings[key] = finding, subject
    return Evaluation(findings, unknown)


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
    severity: alert_kinds.Severity
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
    severity: alert_kinds.Severity
    at: float
    firing: tuple[Alert, ...] = ()
    resolved: tuple[Alert, ...] = ()
    resend: bool = False
    test: bool = False
    page: str = ""

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return (*self.firing, *self.resolved)
