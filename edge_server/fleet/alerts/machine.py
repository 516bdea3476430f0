"""The life of alerts: pending, firing, clearing, resolved; and which notifications follow. Pure.

An alert fires when its state has lasted for the rule's `for`, and is resolved when the state has been over
as long: a state that comes and goes makes one alert. New alerts of a rule wait a little for further ones of
the rule, and are sent together. A receiver hears of an alert again after the rule's `repeat`, and once of its
resolution.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

from edge_server.fleet.alerts.alert import (
    Alert,
    AlertSubject,
    Evaluation,
    Key,
    Notification,
    Phase,
    Silence,
    is_silenced,
)
from edge_server.fleet.settings.alert_kinds import Finding, Rule, Subject
from schemas.base import fields_of

Alerts = Mapping[Key, Alert]


@dataclass(frozen=True)
class Plan:
    """The rules by name, the receivers with their own `resend` seconds if they have any, and the silences.

    `gather_s` is how long new alerts wait for further ones of their rule. `acknowledged` alerts are not
    repeated. `page` is the address of the service's page.
    """

    rules: Mapping[str, Rule]
    receivers: Mapping[str, float | None]
    silences: tuple[Silence, ...] = ()
    gather_s: float = 0.0
    acknowledged: Set[Key] = frozenset()
    page: str = ""


@dataclass(frozen=True)
class Step:
    alerts: Alerts
    notifications: tuple[Notification, ...] = field(default=())


def step(alerts: Alerts, evaluation: Evaluation, plan: Plan, now: float) -> Step:
    """Advance every alert by what the rules found at `now` (seconds since 1970)."""
    advanced = _advance_alerts(alerts, evaluation, plan, now)
    resolved = _find_resolved(advanced, plan, now)
    open_alerts = {key: alert for key, alert in advanced.items() if key not in resolved}
    notifications = []
    for name in dict.fromkeys(key[0] for key in advanced):
        of_rule = [alert for key, alert in open_alerts.items() if key[0] == name]
        ended = [alert for key, alert in resolved.items() if key[0] == name]
        for receiver, resend_s in plan.receivers.items():
            sent = _notification(receiver, resend_s, of_rule, ended, plan, now)
            if sent is None:
                continue
            notifications.append(sent)
            notified = {alert.key: _with_notification(alert, receiver, now) for alert in sent.firing}
            open_alerts |= notified
            of_rule = [notified.get(alert.key, alert) for alert in of_rule]
    return Step(open_alerts, tuple(notifications))


# --- the life of one alert ---
def _advance_alerts(alerts: Alerts, evaluation: Evaluation, plan: Plan, now: float) -> dict[Key, Alert]:
    found = {}
    for key in dict.fromkeys((*alerts, *evaluation.findings)):
        rule, alert = plan.rules.get(key[0]), alerts.get(key)
        if alert is not None and (rule is None or (key[0], key[2]) in evaluation.unknown):
            found[key] = alert
        elif rule is not None:
            advanced = _advance(alert, evaluation.findings.get(key), rule, now)
            found |= {} if advanced is None else {key: advanced}
    return found


def _advance(
    alert: Alert | None, finding: tuple[Finding, Subject] | None, rule: Rule, now: float
) -> Alert | None:
    if finding is None:
        return None if alert is None else _absent(alert, now)
    present = _present(alert, finding, rule, now)
    if present.phase is Phase.PENDING and now - present.since >= rule.for_s:
        return present.model_copy(update={"phase": Phase.FIRING, "fired_at": now})
    return present


def _absent(alert: Alert, now: float) -> Alert | None:
    match alert.phase:
        case Phase.PENDING:
            return None
        case Phase.FIRING:
            return alert.model_copy(update={"phase": Phase.CLEARING, "absent_since": now})
        case _:
            return alert


def _present(alert: Alert | None, finding: tuple[Finding, Subject], rule: Rule, now: float) -> Alert:
    why, subject = finding
    about: dict[str, Any] = {
        "severity": rule.severity,
        "subject": subject_of(subject),
        "text": why.text,
        "remedy": why.remedy,
    }
    if alert is None:
        return Alert(rule=rule.name, since=now, **about)
    if alert.phase is Phase.CLEARING:
        about |= {"phase": Phase.FIRING, "absent_since": None}
    return alert.model_copy(update=about)


def subject_of(subject: Subject) -> AlertSubject:
    """What the alert keeps of its subject."""
    device = subject.device
    return AlertSubject(
        **fields_of(subject, "kind", "federation", "name"),
        labels=dict(subject.labels),
        site=subject.labels.get("site", ""),
        **({} if device is None else fields_of(device, "note", "seen_at", "certificate_until")),
    )


# --- who is notified ---
def _find_resolved(alerts: Alerts, plan: Plan, now: float) -> dict[Key, Alert]:
    """Alerts that end now: those of a rule that is gone, and those whose state has been over long enough."""
    ended = {key: alert for key, alert in alerts.items() if key[0] not in plan.rules}
    for name, rule in plan.rules.items():
        over = {
            key: alert.absent_since
            for key, alert in alerts.items()
            if key[0] == name and alert.phase is Phase.CLEARING and alert.absent_since is not None
        }
        ready = [key for key, since in over.items() if now - since >= rule.for_s]
        if ready and now - min(over.values()) >= plan.gather_s:
            ended |= {key: alerts[key] for key in ready}
    return ended


def _notification(
    receiver: str, resend_s: float | None, alerts: list[Alert], ended: list[Alert], plan: Plan, now: float
) -> Notification | None:
    """What a receiver hears of one rule now."""
    fresh, again = _due(receiver, resend_s, alerts, plan, now)
    resolved = tuple(alert for alert in ended if receiver in alert.notified)
    firing = (*fresh, *again)
    if not firing and not resolved:
        return None
    first = (*firing, *resolved)[0]
    return Notification(
        receiver=receiver,
        rule=first.rule,
        severity=first.severity,
        at=now,
        firing=firing,
        resolved=resolved,
        resend=not fresh and not resolved,
        page=plan.page,
    )


def _due(
    receiver: str, resend_s: float | None, alerts: list[Alert], plan: Plan, now: float
) -> tuple[list[Alert], list[Alert]]:
    """The alerts that the receiver has not heard of and shall, and those that it hears of again."""
    rule = plan.rules.get(alerts[0].rule) if alerts else None
    if rule is None or receiver not in rule.to:
        return [], []
    loud = [alert for alert in alerts if not is_silenced(alert.subject, plan.silences, now)]
    fresh = [alert for alert in loud if alert.phase is Phase.FIRING and receiver not in alert.notified]
    gather_s = plan.gather_s if resend_s is None else 0.0
    if now - min((alert.fired_at for alert in fresh if alert.fired_at is not None), default=now) < gather_s:
        fresh = []
    repeat_s = rule.repeat_s if resend_s is None else resend_s
    phases = (Phase.FIRING,) if resend_s is None else (Phase.FIRING, Phase.CLEARING)
    # A receiver with a time of its own forgets what it does not hear of again.
    seen = plan.acknowledged if resend_s is None else frozenset()
    again = [
        alert
        for alert in loud
        if alert.phase in phases
        and alert.key not in seen
        and receiver in alert.notified
        and now - alert.notified[receiver] >= repeat_s
    ]
    return fresh, again


def _with_notification(alert: Alert, receiver: str, now: float) -> Alert:
    return alert.model_copy(update={"notified": {**alert.notified, receiver: now}})
