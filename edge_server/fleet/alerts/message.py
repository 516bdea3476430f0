"""A notification as people and programs read it. Pure."""

from collections.abc import Iterable
from typing import Any

from edge_client.security.identity.validity import format_utc
from edge_server.config.units import clean, duration_text
from edge_server.fleet.alerts.alert import Alert, AlertSubject, Notification
from schemas.base import fields_of

MAX_NAMED = 3  # Most devices that a title names
MAX_LISTED = 100  # Most alerts that a message lists; the others are counted


def title(notification: Notification) -> str:
    """One line: `warning: silent: pi-7, pi-9 and 2 more`, or `resolved: silent: pi-7`."""
    if notification.test:
        return "test: this is a test of the receiver"
    state = notification.severity if notification.firing else "resolved"
    named = notification.firing or notification.resolved
    names = [alert.subject.name for alert in named[:MAX_NAMED]]
    more = f" and {len(named) - MAX_NAMED} more" if len(named) > MAX_NAMED else ""
    also = ""
    if notification.firing and notification.resolved:
        also = f"; resolved: {len(notification.resolved)}"
    return f"{state}: {notification.rule}: {', '.join(names)}{more}{also}"


def body(notification: Notification) -> str:
    if notification.test:
        return "This is a test of the receiver. No device needs attention.\n"
    at, page = notification.at, notification.page
    parts = [*_paragraphs(notification.firing, at, resolved=False, page=page)]
    parts += _paragraphs(notification.resolved, at, resolved=True, page=page)
    return "\n\n".join(parts) + "\n"


def _paragraphs(alerts: tuple[Alert, ...], now: float, *, resolved: bool, page: str) -> Iterable[str]:
    for alert in alerts[:MAX_LISTED]:
        yield "\n".join(lines(alert, now, resolved=resolved, page=page))
    if len(alerts) > MAX_LISTED:
        yield f"... and {len(alerts) - MAX_LISTED} more: edge-server alerts list"


def lines(alert: Alert, now: float, *, resolved: bool, page: str = "") -> list[str]:
    subject = alert.subject
    who = subject.name if subject.kind == "device" else f"{subject.kind} {subject.name}"
    lasted = f"for {duration_text(max(0.0, now - alert.since))}, since {format_utc(alert.since)}"
    found = [f"resolved: {who} ({lasted}): {alert.text}" if resolved else f"{who} {alert.text}"]
    found += [] if resolved else [f"  alert: {alert.rule}, {alert.severity}, {lasted}"]
    found += [f"  {name}: {value}" for name, value in _about(subject)]
    found += [f"  page: {link_of(alert, page)}"] if page else []
    return found if resolved else [*found, f"  next: {alert.remedy}"]


def link_of(alert: Alert, page: str) -> str | None:
    return f"{page.rstrip('/')}/{alert.place}" if page else None


def _about(subject: AlertSubject) -> Iterable[tuple[str, str]]:
    yield "federation", subject.federation
    if subject.site:
        yield "site", subject.site
    said = (subject.kind, "federation", "site")
    labels = {key: value for key, value in subject.labels.items() if key not in said}
    if labels:
        yield "labels", ", ".join(f"{key}={value}" for key, value in sorted(labels.items()))
    if subject.note:
        yield "note", clean(subject.note)
    if subject.seen_at is not None:
        yield "last seen", format_utc(subject.seen_at)
    if subject.certificate_until is not None:
        yield "certificate until", format_utc(subject.certificate_until)


def document(notification: Notification) -> dict[str, Any]:
    """The JSON document of a webhook; times are seconds since 1970."""
    return {
        "version": 1,
        "title": title(notification),
        **fields_of(notification, "rule", "severity", "at", "test"),
        "url": notification.page or None,
        "alerts": [
            *(alert_document(alert, "firing", notification.page) for alert in notification.firing),
            *(alert_document(alert, "resolved", notification.page) for alert in notification.resolved),
        ],
    }


def alert_document(alert: Alert, status: str, page: str = "") -> dict[str, Any]:
    subject = alert.subject
    return {
        "status": status,
        **fields_of(subject, "kind", "federation", "site", "note", "seen_at", "certificate_until"),
        **fields_of(alert, "rule", "severity", "remedy", "since", "fired_at"),
        subject.kind: subject.name,
        "labels": dict(subject.labels),
        "text": clean(alert.text),
        "url": link_of(alert, page),
    }


def trial_notification(receiver: str, now: float, page: str = "") -> Notification:
    """What `edge-server alerts test` sends."""
    return Notification(receiver=receiver, rule="test", severity="info", at=now, test=True, page=page)
