"""A webhook: the notification as JSON, signed with a shared secret."""

import hashlib
import hmac
import json
import time
from collections.abc import Callable
from pathlib import Path

from edge_server.fleet.alerts.alert import Notification
from edge_server.fleet.alerts.delivery import Deliver
from edge_server.fleet.alerts.message import document
from edge_server.fleet.alerts.receivers.http_post import post, read_secret
from edge_server.fleet.settings.alert_receivers import WebhookReceiver

SIGNATURE, TIMESTAMP = "X-Edge-Signature", "X-Edge-Timestamp"


def webhook(settings: WebhookReceiver, folder: Path, *, clock: Callable[[], float] = time.time) -> Deliver:
    """A receiver that posts; `folder` has its files. Raises `ConfigError` for an unreadable one."""
    secret = None if settings.secret is None else read_secret(folder / settings.secret)
    ca = None if settings.ca is None else folder / settings.ca

    def deliver(notification: Notification) -> None:
        content = json.dumps(document(notification)).encode()
        post(settings.url, content, _headers(secret, content, clock()), ca=ca)

    return deliver


def signature(secret: str, timestamp: str, content: bytes) -> str:
    """The value of the signature's header."""
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + content, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


def _headers(secret: str | None, content: bytes, now: float) -> dict[str, str]:
    timestamp = str(int(now))
    signed = {} if secret is None else {SIGNATURE: signature(secret, timestamp, content)}
    return {"User-Agent": "edge-server", TIMESTAMP: timestamp, **signed}
