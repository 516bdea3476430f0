"""Prometheus' Alertmanager, by its API version 2.

Alertmanager forgets an alert at its `endsAt`. Firing alerts are posted again every `resend` seconds, with an
end that lies several posts ahead, so that a service that is gone leaves no alert behind.
"""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from edge_server.fleet.alerts.alert import Alert, Notification
from edge_server.fleet.alerts.delivery import Deliver
from edge_server.fleet.alerts.message import link_of
from edge_server.fleet.alerts.receivers.http_post import post, read_secret
from edge_server.fleet.settings.alert_receivers import AlertmanagerReceiver

POSTS_AHEAD = 5
TEST_S = 60.0  # Seconds for which a test is shown


def alertmanager(settings: AlertmanagerReceiver, folder: Path) -> Deliver:
    """A receiver that posts alerts; `folder` has its files. Raises `ConfigError` for an unreadable one."""
    password = "" if settings.password is None else read_secret(folder / settings.password)
    ca = None if settings.ca is None else folder / settings.ca
    url = f"{settings.url.rstrip('/')}/api/v2/alerts"
    headers = {} if settings.user is None else {"Authorization": _basic(settings.user, password)}

    def deliver(notification: Notification) -> None:
        post(url, json.dumps(alerts(settings, notification)).encode(), headers, ca=ca)

    return deliver


def alerts(settings: AlertmanagerReceiver, notification: Notification) -> list[dict[str, Any]]:
    """The alerts of a notification in Alertmanager's form."""
    if notification.test:
        return [_test(settings, notification)]
    ends = notification.at + POSTS_AHEAD * settings.resend
    all_of = (
        *((alert, ends) for alert in notification.firing),
        *((alert, notification.at) for alert in notification.resolved),
    )
    return [_alert(settings, alert, until, link_of(alert, notification.page)) for alert, until in all_of]


def _alert(settings: AlertmanagerReceiver, alert: Alert, ends: float, link: str | None) -> dict[str, Any]:
    subject = alert.subject
    labels = {
        **{key.replace("-", "_"): value for key, value in subject.labels.items()},
        **settings.labels,
        "alertname": alert.rule,
        "severity": alert.severity,
        "federation": subject.federation,
        subject.kind: subject.name,
    }
    annotations = {"summary": f"{subject.name} {alert.text}", "remedy": alert.remedy, "note": subject.note}
    return {
        "labels": labels,
        "annotations": {key: value for key, value in annotations.items() if value},
        "startsAt": _time(alert.fired_at or alert.since),
        "endsAt": _time(ends),
        **({"generatorURL": link} if link else {}),
    }


def _test(settings: AlertmanagerReceiver, notification: Notification) -> dict[str, Any]:
    return {
        "labels": {**settings.labels, "alertname": "test", "severity": "info"},
        "annotations": {"summary": "This is a test of the receiver. No device needs attention."},
        "startsAt": _time(notification.at),
        "endsAt": _time(notification.at + TEST_S),
    }


def _basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")
