"""The kinds of rules: each is a function of a subject, a rule and the time. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from edge_client.security.identity.validity import format_utc
from edge_server.config.units import bytes_text, clean, duration_text
from edge_server.fleet.alerts.facts import Facts, Incident, IncidentKind, Subject
from edge_server.fleet.settings.alerts import Rule


@dataclass(frozen=True)
class Finding:
    """Why a rule applies to a subject, as a predicate of it, and a command that helps."""

    text: str
    remedy: str


CONNECTED_S = 180.0
"""A connected device counts as silent after this time at the earliest: it reports its state now and then."""
Condition = Callable[[Subject, Rule, float], Finding | None]
Key = tuple[str, str, str, str]
"""The fingerprint of an alert: its rule, and the kind, federation and name of its subject."""


def silent(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device that was heard before, but not for that long."""
    device = subject.device
    if device is None or device.seen_at is None:
        return None
    if now - device.seen_at <= max(rule.threshold, CONNECTED_S if device.alive else 0.0):
        return None
    state = "is connected, but has sent nothing" if device.alive else "has not been heard"
    remedy = f"check its power and network; once it is back: edge-server logs {subject.name} --since 3h"
    return Finding(f"{state} since {format_utc(device.seen_at)}", remedy)


def certificate_ends(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device whose certificate ends soon, or has ended."""
    until = None if subject.device is None else subject.device.certificate_until
    if until is None or until - now >= rule.threshold:
        return None
    word = "ended" if until <= now else "ends"
    return Finding(
        f"has a certificate that {word} {format_utc(until)}",
        f"edge-server doctor --where device={subject.name}; a new one: edge-server enroll {subject.name}",
    )


def drifts(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device whose new data differ from those that it was trained on."""
    drift = None if subject.device is None else subject.device.drift
    if drift is None:
        return None
    why = f"{clean(drift.statistic)} of {drift.examples} new examples, p = {drift.p_value:.2g}"
    return Finding(
        f"reports drift of its data: {why}", "train again: edge-server jobs add NAME FEDERATION.toml"
    )


def disk_is_full(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device with little free disk space."""
    free = None if subject.device is None else subject.device.free_disk
    if free is None or free >= rule.threshold:
        return None
    return Finding(f"has {bytes_text(free)} of free disk space", _doctor(subject))


def is_hot(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device that is too warm."""
    board = None if subject.device is None else subject.device.board
    if board is None or board.celsius is None or board.celsius <= rule.threshold:
        return None
    return Finding(f"has a temperature of {board.celsius:.1f} °C", _doctor(subject))


def is_refused(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device that was refused often."""
    found = subject.recent(IncidentKind.REFUSAL, now - rule.within_s)
    times = sum(incident.count for incident in found)
    if not found or times < rule.threshold:
        return None
    return Finding(
        f"was refused {_times(times)} in {duration_text(rule.within_s)}: {clean(found[-1].text)}",
        f"edge-server devices {found[-1].run} --why {subject.name}",
    )


def accuracy_fell(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device on which the last rollout's model is worse than the one before."""
    found = subject.recent(IncidentKind.TRIAL, now - rule.within_s)
    lost = found[-1].lost if found else None
    if lost is None or lost <= rule.threshold:
        return None
    remedy = f"edge-server logs {subject.name} --since 1h; another version: edge-server rollout VERSION"
    return Finding(clean(found[-1].text), remedy)


def round_failed(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A run whose rounds were abandoned."""
    found = subject.recent(IncidentKind.ROUND, now - rule.within_s)
    times = sum(incident.count for incident in found)
    if not found or times < rule.threshold:
        return None
    return Finding(
        f"abandoned a round {_times(times)} in {duration_text(rule.within_s)}: {clean(found[-1].text)}",
        f"edge-server dashboard {found[-1].run}",
    )


def job_failed(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A job that failed."""
    found: list[Incident] = subject.recent(IncidentKind.JOB, now - rule.within_s)
    if not found:
        return None
    return Finding(f"failed: {clean(found[-1].text)}", f"edge-server jobs logs {subject.name}")


CONDITIONS: Mapping[str, Condition] = {
    "silent-for": silent,
    "certificate-ends-within": certificate_ends,
    "drift": drifts,
    "disk-free-below": disk_is_full,
    "temperature-above": is_hot,
    "refused-times": is_refused,
    "accuracy-fell": accuracy_fell,
    "round-failed": round_failed,
    "job-failed": job_failed,
}  # The condition of each kind of rule (`edge_server.fleet.settings.alerts.MEASURES` has their values)
OF_PRESENCE = frozenset({"silent-for"})
"""Kinds that say nothing while the service has no connection to the broker."""


@dataclass(frozen=True)
class Evaluation:
    """What the rules found; alerts of a rule and federation in `unknown` stay as they are."""

    findings: Mapping[Key, tuple[Finding, Subject]]
    unknown: frozenset[tuple[str, str]] = frozenset()


def evaluate(rules: tuple[Rule, ...], facts: Facts, now: float) -> Evaluation:
    """Evaluate every rule for every subject that it chooses."""
    unknown = frozenset(
        (rule.name, federation) for rule in rules if rule.when in OF_PRESENCE for federation in facts.unheard
    )
    findings = {}
    for rule in rules:
        condition = CONDITIONS[rule.when]
        for subject in facts.subjects:
            if (rule.name, subject.federation) in unknown:
                continue
            finding = condition(subject, rule, now)
            if finding is not None and rule.where.matches(subject.labels):
                key = (rule.name, subject.kind, subject.federation, subject.name)
                findings[key] = finding, subject
    return Evaluation(findings, unknown)


def _doctor(subject: Subject) -> str:
    return f"edge-server doctor --where device={subject.name}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
