"""What rules see of devices, runs and jobs at one moment, and what they find. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edge_server.fleet.settings.alert_kinds import RULE_KINDS, Finding, Incident, IncidentKind, Rule, Subject
from edge_server.storage.inventory.records import InventoryDevice


@dataclass(frozen=True)
class Facts:
    """Everything at one moment. In the `unheard` federations nobody knows which devices are silent."""

    subjects: tuple[Subject, ...] = ()
    unheard: frozenset[str] = frozenset()


def gather(
    devices: Iterable[InventoryDevice],
    incidents: Iterable[Incident],
    *,
    unheard: frozenset[str] = frozenset(),
) -> Facts:
    """The facts by subject; revoked devices, and incidents of unknown ones, are left out."""
    of_devices: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    others: dict[tuple[str, str, str], list[Incident]] = defaultdict(list)
    for incident in incidents:
        if incident.kind in (IncidentKind.REFUSAL, IncidentKind.TRIAL):
            of_devices[incident.federation, incident.subject].append(incident)
        else:
            kind = "run" if incident.kind is IncidentKind.ROUND else "job"
            others[kind, incident.federation, incident.subject].append(incident)
    boards = tuple(_of_device(device, of_devices) for device in devices if device.revoked_at is None)
    rest = tuple(
        Subject(kind, federation, name, {"federation": federation, kind: name}, incidents=tuple(found))
        for (kind, federation, name), found in others.items()
    )
    return Facts((*boards, *rest), unheard)


def _of_device(device: InventoryDevice, found: Mapping[tuple[str, str], list[Incident]]) -> Subject:
    incidents = tuple(found.get((device.federation, device.device), ()))
    return Subject("device", device.federation, device.device, device.selectable, device, incidents)


Key = tuple[str, str, str, str]
"""The fingerprint of an alert: its rule, and the kind, federation and name of its subject."""


@dataclass(frozen=True)
class Evaluation:
    """What the rules found; alerts of a rule and federation in `unknown` stay as they are."""

    findings: Mapping[Key, tuple[Finding, Subject]]
    unknown: frozenset[tuple[str, str]] = frozenset()


def evaluate(rules: tuple[Rule, ...], facts: Facts, now: float) -> Evaluation:
    """Evaluate every rule for every subject that it chooses."""
    unknown = frozenset(
        (rule.name, federation)
        for rule in rules
        if RULE_KINDS[rule.when].of_presence
        for federation in facts.unheard
    )
    findings = {}
    for rule in rules:
        find = RULE_KINDS[rule.when].find
        for subject in facts.subjects:
            if (rule.name, subject.federation) in unknown:
                continue
            finding = find(subject, rule, now)
            if finding is not None and rule.where.matches(subject.labels):
                key = (rule.name, subject.kind, subject.federation, subject.name)
                findings[key] = finding, subject
    return Evaluation(findings, unknown)
