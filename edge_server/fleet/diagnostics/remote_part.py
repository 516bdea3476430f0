"""The fleet service's part that asks devices for diagnostics, and keeps their answers for the page."""

import queue
import secrets
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edge_server.fleet.diagnostics import inquiry as machine
from edge_server.fleet.diagnostics.answers import findings_of, log_lines, safe, why_none
from edge_server.fleet.diagnostics.inquiry import Inquired, Inquiry, Terms
from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.storage import audit_log
from schemas.errors import ConfigError, EdgeError
from schemas.messages import Death, DiagnosticPart, DiagnosticReceipt, DiagnosticRefusal, remote

# What devices have answered to people who asked them on the page: in memory, the newest of each kind.

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
        self._asked: dict[tuple[str, str, remote.Diagnostic], _Asked] = {}
        self._lock = threading.Lock()

    def ask(self, federation: str, device: str, what: remote.Diagnostic, *, who: str, now: float) -> None:
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


def _value(what: remote.Diagnostic, asked: _Asked) -> dict[str, Any]:
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


_SHOWN = {remote.Diagnostic.DOCTOR: _doctor, remote.Diagnostic.LOGS: _logs}


MAX_OPEN = 32  # Requests that the service works on at a time
PATIENCE_S = 300.0


@dataclass
class _Open:
    """A request that is being answered; `inquiry` is None until the service's thread has begun it."""

    federation: str
    device: str
    terms: Terms
    future: "Future[Inquired]"
    inquiry: Inquiry | None = None


class RemotePart(Part):
    """Asks devices; `request` is safe in any thread."""

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._new: queue.SimpleQueue[_Open] = queue.SimpleQueue()
        self._open: dict[str, _Open] = {}

    def request(self, federation: str, device: str, terms: Terms, *, who: str) -> "Future[Inquired]":
        """Ask a device; the request is in the audit log when the function returns.

        Raises `EdgeError` if too many requests are open.
        """
        if len(self._open) + self._new.qsize() >= MAX_OPEN:
            raise EdgeError(f"{MAX_OPEN} requests for diagnostics are open: wait until some are answered")
        record_request(self._context.folder.audit, who, federation, (device,), terms)
        future: Future[Inquired] = Future()
        self._new.put(_Open(federation, device, terms, future))
        self._context.wake()
        return future

    def on_message(self, heard: Heard, now: float) -> None:
        message = heard.message
        if isinstance(message, DiagnosticReceipt | DiagnosticPart | DiagnosticRefusal):
            opened = self._open.get(message.request)
            if opened is not None and opened.federation == heard.federation:
                self._step(message.request, opened, machine.Heard(message), now)
        elif isinstance(message, Death):
            for request, opened in list(self._open.items()):
                if (opened.federation, opened.device) == (heard.federation, heard.device):
                    self._step(request, opened, machine.Gone(heard.device), now)

    def on_connected(self, federation: str, now: float) -> None:
        for request, opened in list(self._open.items()):
            if opened.federation == federation:
                self._step(request, opened, machine.Connected(), now)

    def tick(self, now: float) -> None:
        while not self._new.empty():
            opened, request = self._new.get(), secrets.token_hex(8)
            opened.inquiry = machine.begin(
                opened.federation, request, opened.terms, (opened.device,), ends_at=now + PATIENCE_S
            )
            self._open[request] = opened
        for request, opened in list(self._open.items()):
            self._step(request, opened, machine.Tick(), now)

    def stop(self) -> None:
        while not self._new.empty():
            self._new.get().future.cancel()
        for opened in self._open.values():
            opened.future.cancel()

    def _step(self, request: str, opened: _Open, event: machine.Event, now: float) -> None:
        assert opened.inquiry is not None
        opened.inquiry, requests = machine.step(opened.inquiry, event, now)
        for message in requests:
            self._context.publish(opened.federation, message.device, message)
        if opened.inquiry.over:
            del self._open[request]
            if opened.future.set_running_or_notify_cancel():
                opened.future.set_result(opened.inquiry.devices[opened.device])


def record_request(path: Path, who: str, federation: str, devices: Sequence[str], terms: Terms) -> None:
    """Append who asks which devices for what, as one entry."""
    target = f"{federation}/{devices[0]}" if len(devices) == 1 else federation
    asked = {"devices": list(devices)} if len(devices) != 1 else {}
    limits = {} if terms.since_s is None else {"since_s": terms.since_s}
    audit_log.append_entry(
        path, who=who, what=f"diagnostics {terms.what}", target=target, after={**asked, **limits} or None
    )
