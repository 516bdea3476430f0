"""The fleet service's part that asks devices for diagnostics, for the page and other parts."""

import queue
import secrets
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

from edge_server.fleet.diagnostics import inquiry as machine
from edge_server.fleet.diagnostics.inquiry import Inquired, Inquiry, Terms
from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.storage import audit_log
from schemas.errors import EdgeError
from schemas.messages import Death, DiagnosticPart, DiagnosticReceipt, DiagnosticRefusal

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
