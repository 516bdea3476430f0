"""What devices have answered to people who asked them on the page: in memory, the newest of each kind."""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from edge_server.fleet.diagnostics.answers import findings_of, log_lines, safe, why_none
from edge_server.fleet.diagnostics.inquiry import Inquired, Terms
from schemas.errors import ConfigError
from schemas.messages.remote import Diagnostic

LOG_LINES = 200
MAX_KEPT = 500  # Answers that are kept; the oldest are forgotten


class Request(Protocol):
    """Asks a device (`RemotePart.request`)."""

    def __call__(self, federation: str, device: str, terms: Terms, *, who: str) -> "Future[Inquired]": ...


@dataclass(frozen=True)
class _Asked:
    who: str
    at: float
    answer: "Future[Inquired]"


class Diagnostics:
    """Asks devices, and keeps their answers; safe in any thread."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._asked: dict[tuple[str, str, Diagnostic], _Asked] = {}
        self._lock = threading.Lock()

    def ask(self, federation: str, device: str, what: Diagnostic, *, who: str, now: float) -> None:
        """Ask a device; raises `EdgeError` while it is being asked, or too many are."""
        key = (federation, device, what)
        with self._lock:
            before = self._asked.get(key)
            if before is not None and not before.answer.done():
                raise ConfigError(f"{device} is being asked already", remedy="wait for its answer")
            answer = self._request(federation, device, Terms(what, lines=LOG_LINES), who=who)
            self._asked.pop(key, None)
            self._asked[key] = _Asked(who, now, answer)
            if len(self._asked) > MAX_KEPT:
                del self._asked[next(iter(self._asked))]

    def of_device(self, federation: str, device: str) -> dict[str, Any]:
        """The last answers of a device by what was asked, as JSON."""
        with self._lock:
            found = {what: self._asked.get((federation, device, what)) for what in _SHOWN}
        return {str(what): _value(what, asked) for what, asked in found.items() if asked is not None}


def _value(what: Diagnostic, asked: _Asked) -> dict[str, Any]:
    about = {"asked_by": asked.who, "asked_at": asked.at}
    if not asked.answer.done():
        return {**about, "status": "waiting"}
    if asked.answer.cancelled():
        return {**about, "status": "failed", "why": "the service has ended meanwhile"}
    device = asked.answer.result()
    if device.document is None:
        return {**about, "status": str(device.status), "why": why_none(device)}
    return {**about, "status": "answered", **_SHOWN[what](device.document)}


def _doctor(document: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("level", "check", "detail", "remedy")
    return {"findings": [{key: safe(found.get(key, "")) for key in keys} for found in findings_of(document)]}


def _logs(document: Mapping[str, Any]) -> dict[str, Any]:
    lines = document.get("logs")
    found = [line for line in lines if isinstance(line, dict)] if isinstance(lines, list) else []
    return {"lines": [text for line in found[-LOG_LINES:] for text in log_lines(line)]}


_SHOWN = {Diagnostic.DOCTOR: _doctor, Diagnostic.LOGS: _logs}
