"""Posting JSON to a web address, without following redirects."""

import hashlib
import hmac
import http.client
import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from edge_server.fleet.alerts.alert import Notification
from edge_server.fleet.alerts.delivery import Deliver, DeliveryError
from edge_server.fleet.alerts.message import document
from edge_server.fleet.settings.alert_receivers import WebhookReceiver
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
        raise ConfigError(f"{file}: the secret cannot be read: {reason_of(error)}") from error
    if not text:
        raise ConfigError(f"{file}: the file of the secret is empty")
    return text


# A webhook: the notification as JSON, signed with a shared secret.

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
    signed = hmac.new(secret.encode(), timestamp.encode() + b"." + content, hashlib.sha256)
    return f"sha256={signed.hexdigest()}"


def _headers(secret: str | None, content: bytes, now: float) -> dict[str, str]:
    timestamp = str(int(now))
    signed = {} if secret is None else {SIGNATURE: signature(secret, timestamp, content)}
    return {"User-Agent": "edge-server", TIMESTAMP: timestamp, **signed}
