"""The kinds of alert rules: what each sees of a device, run or job, what it finds, and its value. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

from edge_client.security.identity.validity import format_utc
from edge_server.config import measures
from edge_server.config.units import bytes_text, clean, duration_text
from edge_server.storage.inventory.records import InventoryDevice
from schemas.selectors import EVERY, Where

Severity = Literal["info", "warning", "critical"]


class IncidentKind(StrEnum):
    """What an incident concerns."""

    REFUSAL = "refusal"
    ROUND = "round"
    JOB = "job"
    TRIAL = "trial"


@dataclass(frozen=True)
class Incident:
    """Something that happened `count` times, the last time `at`; `run` is its run folder.

    The subject is a device of a refusal or trial, else a run or job. `lost` is by how much a trial's model
    was worse than the one before, if both were measured.
    """

    at: float
    kind: IncidentKind
    federation: str
    subject: str
    text: str = ""
    count: int = 1
    run: str = ""
    lost: float | None = None


@dataclass(frozen=True)
class Subject:
    """What one alert may be about: a device with its state, or a run or job."""

    kind: str
    federation: str
    name: str
    labels: Mapping[str, str]
    device: InventoryDevice | None = None
    incidents: tuple[Incident, ...] = ()

    def recent(self, kind: IncidentKind, since: float) -> list[Incident]:
        """The incidents of a kind after `since`, the newest last."""
        found = [incident for incident in self.incidents if incident.kind is kind and incident.at > since]
        return sorted(found, key=lambda incident: incident.at)


@dataclass(frozen=True)
class Rule:
    """A rule with every value in its base unit: seconds, bytes, degrees Celsius, a share of one, a count."""

    name: str
    when: str
    threshold: float = 0.0
    where: Where = EVERY
    severity: Severity = "warning"
    repeat_s: float = 86_400.0
    for_s: float = 0.0
    within_s: float = 86_400.0
    to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """Why a rule applies to a subject, as a predicate of it, and a command that helps."""

    text: str
    remedy: str


CONNECTED_S = 180.0
"""A connected device counts as silent after this time at the earliest: it reports its state now and then."""
Condition = Callable[[Subject, Rule, float], Finding | None]


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


def _too_often(subject: Subject, rule: Rule, now: float, kind: IncidentKind, what: str) -> Incident | None:
    """The last incident of a kind of which there were too many; its text says `what` was done so often."""
    found = subject.recent(kind, now - rule.within_s)
    times = sum(incident.count for incident in found)
    if not found or times < rule.threshold:
        return None
    text = f"{what} {_times(times)} in {duration_text(rule.within_s)}: {clean(found[-1].text)}"
    return replace(found[-1], text=text)


def is_refused(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A device that was refused often."""
    last = _too_often(subject, rule, now, IncidentKind.REFUSAL, "was refused")
    if last is None:
        return None
    return Finding(last.text, f"edge-server devices {last.run} --why {subject.name}")


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
    last = _too_often(subject, rule, now, IncidentKind.ROUND, "abandoned a round")
    return Finding(last.text, f"edge-server dashboard {last.run}") if last else None


def job_failed(subject: Subject, rule: Rule, now: float) -> Finding | None:
    """A job that failed."""
    found: list[Incident] = subject.recent(IncidentKind.JOB, now - rule.within_s)
    if not found:
        return None
    return Finding(f"failed: {clean(found[-1].text)}", f"edge-server jobs logs {subject.name}")


def _doctor(subject: Subject) -> str:
    return f"edge-server doctor --where device={subject.name}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


@dataclass(frozen=True)
class RuleKind:
    """What rules of a kind find, said in `about`; what their value is, and its default as users write it.

    A kind that is `of_presence` says nothing while the service has no connection to the broker.
    """

    about: str
    find: Condition
    value: str = ""
    default: str = ""
    of_presence: bool = False

    def threshold(self, text: str) -> float:
        """A value in its base unit; raises `ConfigError`."""
        return VALUES[self.value](text)


VALUES: Mapping[str, Callable[[str], float]] = {
    "duration": measures.parse_duration,
    "size": measures.parse_bytes,
    "degrees Celsius": measures.parse_celsius,
    "count": measures.parse_count,
    "share": measures.parse_share,
}
"""What the value of a rule may be, and how it is read."""
RULE_KINDS: Mapping[str, RuleKind] = {
    "silent-for": RuleKind(
        "a device that was heard before, but not for that long", silent, "duration", "2h", of_presence=True
    ),
    "certificate-ends-within": RuleKind(
        "a device whose certificate ends soon, or has ended", certificate_ends, "duration", "14d"
    ),
    "drift": RuleKind("a device whose new data differ from those that it was trained on", drifts),
    "disk-free-below": RuleKind("a device with little free space for its state", disk_is_full, "size", "1GB"),
    "temperature-above": RuleKind("a device that is too warm", is_hot, "degrees Celsius", "80"),
    "refused-times": RuleKind(
        "a device that was refused that often `within` a time", is_refused, "count", "5"
    ),
    "accuracy-fell": RuleKind(
        "a device on which the last rollout's model is worse than the one before by more than that",
        accuracy_fell,
        "share",
        "5%",
    ),
    "round-failed": RuleKind(
        "a run that abandoned that many rounds `within` a time", round_failed, "count", "1"
    ),
    "job-failed": RuleKind(
        "a job whose newest run has failed, or a run without a job, `within` a time", job_failed
    ),
}
"""The kinds of rules, as `when` names them."""
