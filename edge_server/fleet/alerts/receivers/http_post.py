"""Posting JSON to a web address, without following redirects."""

import base64
import hashlib
import hmac
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edge_server.fleet.alerts.alert import Alert, Notification
from edge_server.fleet.alerts.delivery import Deliver, DeliveryError
from edge_server.fleet.alerts.message import document, link_of
from edge_server.fleet.settings.alerts import AlertmanagerReceiver, WebhookReceiver
from schemas.errors import ConfigError

TIMEOUT_S = 10.0
MAX_ANSWER = 300


def post(url: str, content: bytes, headers: Mapping[str, str], *, ca: Path | None = None) -> None:
    """Post JSON; raises `DeliveryError` unless the answer is a success."""
    parts = urlsplit(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection = _connection(parts.scheme, str(parts.hostname), parts.port, ca)
        try:
            connection.request("POST", path, content, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            text = answer.read(MAX_ANSWER).decode(errors="replace")
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        raise make_untrusted_error(url, error) from error
    except (OSError, http.client.HTTPException) as error:
        raise DeliveryError(
            f"{url}: cannot be reached: {reason_of(error)}; check the address and that it runs"
        ) from error
    if not 200 <= answer.status < 300:
        raise DeliveryError(_refusal(url, answer.status, answer.reason, text))


def _connection(scheme: str, host: str, port: int | None, ca: Path | None) -> http.client.HTTPConnection:
    if scheme == "http":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=tls_context(ca))


def tls_context(ca: Path | None) -> ssl.SSLContext:
    """A context that trusts the system's authorities, or only that of the file; raises `DeliveryError`."""
    try:
        return ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError as error:
        raise DeliveryError(f"{ca}: no certificate that can be read: {reason_of(error)}") from error


def _refusal(url: str, status: int, reason: str, text: str) -> str:
    said = " ".join(text.split())
    hint = {
        401: "; check the secret or password",
        403: "; check the secret or password",
        404: "; check the path",
    }
    moved = "; write the address that it redirects to" if 300 <= status < 400 else ""
    return f"{url}: answered {status} {reason}{f': {said}' if said else ''}{hint.get(status, moved)}"


def make_untrusted_error(where: str, error: ssl.SSLCertVerificationError) -> DeliveryError:
    why = error.verify_message or error
    return DeliveryError(f"{where}: its certificate is not trusted: {why}; name its authority with ca = FILE")


def reason_of(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def read_secret(file: Path) -> str:
    """The text of a secret's file without surrounding spaces; raises `ConfigError`."""
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the secret cannot be read: {reason_of(error)}", place=file) from error
    if not text:
        raise ConfigError("the file of the secret is empty", place=file)
    return text


SIGNATURE, TIMESTAMP = "X-Edge-Signature", "X-Edge-Timestamp"


def webhook(settings: WebhookReceiver, *, clock: Callable[[], float] = time.time) -> Deliver:
    """A receiver that posts; raises `ConfigError` for a secret that cannot be read."""
    secret = None if settings.secret is None else read_secret(settings.secret)

    def deliver(notification: Notification) -> None:
        content = json.dumps(document(notification)).encode()
        post(settings.url, content, _headers(secret, content, clock()), ca=settings.ca)

    return deliver


def signature(secret: str, timestamp: str, content: bytes) -> str:
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + content, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


def _headers(secret: str | None, content: bytes, now: float) -> dict[str, str]:
    timestamp = str(int(now))
    signed = {} if secret is None else {SIGNATURE: signature(secret, timestamp, content)}
    return {"User-Agent": "edge-server", TIMESTAMP: timestamp, **signed}


# Prometheus' Alertmanager, by its API version 2.
POSTS_AHEAD = 5
TEST_S = 60.0  # Seconds for which a test is shown


def alertmanager(settings: AlertmanagerReceiver) -> Deliver:
    """A receiver that posts alerts; raises `ConfigError` for a password that cannot be read."""
    password = "" if settings.password is None else read_secret(settings.password)
    url = f"{settings.url.rstrip('/')}/api/v2/alerts"
    headers = {} if settings.user is None else {"Authorization": _basic(settings.user, password)}

    def deliver(notification: Notification) -> None:
        post(url, json.dumps(alerts(settings, notification)).encode(), headers, ca=settings.ca)

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
