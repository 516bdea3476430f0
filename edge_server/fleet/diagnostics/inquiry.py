"""Asks devices for a diagnostic, as a pure state machine: `step(inquiry, event, now)`.

Every request is repeated until the device has answered it or is taken for silent. Parts of an answer are
requested a few at a time, and again if they are lost; the answer counts if its digest is right.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import sha256
from typing import Any

from schemas.base import fields_of
from schemas.messages import DiagnosticPart, DiagnosticReceipt, DiagnosticRefusal, DiagnosticRequest
from schemas.messages.remote import PARTS_AT_ONCE, Diagnostic, DiagnosticObstacle, LogLevel

REPEAT_S = 3.0
SILENT_S = 12.0  # Seconds without any answer after which a device counts as silent
FELL_SILENT_S = 30.0  # The same for a device that has answered before: its link may be slow
AT_ONCE = 32  # Devices that are asked at the same time
MAX_DAMAGED = 2  # Answers with a wrong digest before a device is given up
AT_A_SITE = "; is the gateway of its site connected, and of this version?"


class Status(StrEnum):
    """How far a device is; the last seven are final."""

    WAITING = "waiting"
    ASKED = "asked"
    COLLECTING = "collecting"
    HELD_OFF = "held-off"
    ANSWERED = "answered"
    OFFLINE = "offline"
    SILENT = "silent"
    DISABLED = "disabled"
    RATE_LIMITED = "rate-limited"
    BUSY = "busy"
    FAILED = "failed"


OPEN = frozenset({Status.WAITING, Status.ASKED, Status.COLLECTING, Status.HELD_OFF})


@dataclass(frozen=True)
class Terms:
    """What is asked; age, level and number limit log lines."""

    what: Diagnostic
    since_s: float | None = None
    level: LogLevel = "debug"
    lines: int = 1_000


@dataclass(frozen=True)
class Inquired:
    """One device: its answer as a `document`, or why there is none (`detail`, and `again_s` if known).

    It was last heard at `heard_at`, and is asked again at `next_at`. `awaited` are the parts that were asked
    for last.
    """

    device: str
    status: Status = Status.WAITING
    document: Mapping[str, Any] | None = None
    detail: str = ""
    again_s: float | None = None
    heard_at: float = 0.0
    next_at: float = 0.0
    heard: bool = False
    digest: str = ""
    count: int = 0
    parts: Mapping[int, str] = field(default_factory=dict)
    awaited: tuple[int, ...] = ()
    damaged: int = 0

    @property
    def missing(self) -> tuple[int, ...]:
        """The next parts to ask for; empty before the first one has come."""
        return tuple(number for number in range(self.count) if number not in self.parts)[:PARTS_AT_ONCE]


@dataclass(frozen=True)
class Inquiry:
    """All devices that are asked under one `request` id; what is not answered at `ends_at` is given up."""

    federation: str
    request: str
    terms: Terms
    ends_at: float
    devices: Mapping[str, Inquired]

    @property
    def over(self) -> bool:
        return not any(device.status in OPEN for device in self.devices.values())


@dataclass(frozen=True)
class Heard:
    """Event: a device has answered."""

    message: DiagnosticReceipt | DiagnosticPart | DiagnosticRefusal


@dataclass(frozen=True)
class Gone:
    """Event: a device is not connected to the broker."""

    device: str


@dataclass(frozen=True)
class Connected:
    """Event: the connection to the broker stands again: ask at once."""


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


Event = Heard | Gone | Connected | Tick
Step = tuple[Inquiry, list[DiagnosticRequest]]


def begin(federation: str, request: str, terms: Terms, devices: Iterable[str], *, ends_at: float) -> Inquiry:
    """An inquiry of these devices; nothing is sent before the first event."""
    asked = {device: Inquired(device) for device in dict.fromkeys(devices)}
    return Inquiry(federation, request, terms, ends_at, asked)


def step(inquiry: Inquiry, event: Event, now: float) -> Step:
    """Apply one event; returns the requests to send."""
    match event:
        case Heard(message):
            return _on_message(inquiry, message, now)
        case Gone(device):
            return _advance(_on_gone(inquiry, device), now)
        case Connected():
            again = {name: replace(device, next_at=now) for name, device in inquiry.devices.items()}
            return _advance(replace(inquiry, devices=again), now)
        case Tick():
            return _advance(inquiry, now)


def _advance(inquiry: Inquiry, now: float) -> Step:
    """Give up what is over time, ask again what is due, and begin with further devices."""
    devices = {name: _given_up(device, inquiry, now) for name, device in inquiry.devices.items()}
    busy = sum(device.status in OPEN - {Status.WAITING} for device in devices.values())
    requests: list[DiagnosticRequest] = []
    for name, device in devices.items():
        if device.status is Status.WAITING and busy < AT_ONCE:
            device, busy = replace(device, status=Status.ASKED, heard_at=now, next_at=now), busy + 1
        if device.status in OPEN - {Status.WAITING} and now >= device.next_at:
            device, request = _ask(inquiry, device, now)
            requests.append(request)
        devices[name] = device
    return replace(inquiry, devices=devices), requests


def _given_up(device: Inquired, inquiry: Inquiry, now: float) -> Inquired:
    if device.status not in OPEN:
        return device
    if device.status is Status.WAITING:
        late = replace(device, status=Status.FAILED, detail="not asked in time: too many devices")
        return late if now >= inquiry.ends_at else device
    if device.status is Status.HELD_OFF:
        final = Status.BUSY if now >= inquiry.ends_at else device.status
        return replace(device, status=final)
    patience = FELL_SILENT_S if device.heard else SILENT_S
    silent = now >= device.heard_at + patience
    if not silent and now < inquiry.ends_at:
        return device
    if device.status is Status.COLLECTING and not silent:
        detail = f"{len(device.parts)} of {device.count} parts came" if device.count else "still collecting"
        return replace(device, status=Status.FAILED, detail=f"not done in time: {detail}")
    site = AT_A_SITE if "." in device.device else ""
    return replace(
        device, status=Status.SILENT, detail=f"no answer{' any more' if device.heard else ''}{site}"
    )


def _on_gone(inquiry: Inquiry, name: str) -> Inquiry:
    device = inquiry.devices.get(name)
    if device is None or device.status not in OPEN or device.heard:
        return inquiry
    return _with(inquiry, replace(device, status=Status.OFFLINE, detail="not connected to the broker"))


def _ask(inquiry: Inquiry, device: Inquired, now: float) -> tuple[Inquired, DiagnosticRequest]:
    request = DiagnosticRequest(
        **fields_of(inquiry, "federation", "request"),
        **fields_of(inquiry.terms, "what", "since_s", "level", "lines"),
        device=device.device,
        wanted=device.missing,
    )
    return replace(device, next_at=now + REPEAT_S, awaited=device.missing), request


def _on_message(
    inquiry: Inquiry, message: DiagnosticReceipt | DiagnosticPart | DiagnosticRefusal, now: float
) -> Step:
    device = inquiry.devices.get(message.device)
    if device is None or message.request != inquiry.request or device.status not in OPEN - {Status.WAITING}:
        return inquiry, []
    device = replace(device, heard=True, heard_at=now)
    match message:
        case DiagnosticReceipt():
            device = replace(device, status=Status.COLLECTING)
        case DiagnosticRefusal():
            device = _on_refusal(device, message, now)
        case DiagnosticPart():
            device = _take_part(replace(device, status=Status.COLLECTING), message, now)
    return _advance(_with(inquiry, device), now)


def _on_refusal(device: Inquired, refusal: DiagnosticRefusal, now: float) -> Inquired:
    if refusal.obstacle is DiagnosticObstacle.BUSY:
        wait = refusal.again_s if refusal.again_s is not None else REPEAT_S
        detail = refusal.detail or "busy"
        return replace(device, status=Status.HELD_OFF, detail=detail, next_at=now + max(wait, 1.0))
    status = Status(refusal.obstacle.value)
    return replace(device, status=status, detail=refusal.detail, again_s=refusal.again_s, parts={})


def _take_part(device: Inquired, part: DiagnosticPart, now: float) -> Inquired:
    if (part.digest, part.parts) != (device.digest, device.count):
        # The device was restarted, and has collected anew.
        first = tuple(range(min(PARTS_AT_ONCE, part.parts)))
        device = replace(device, digest=part.digest, count=part.parts, parts={}, awaited=first)
    device = replace(device, parts={**device.parts, part.part: part.text}, next_at=now + REPEAT_S)
    if len(device.parts) == device.count:
        return _complete(device, now)
    return device if set(device.awaited) - device.parts.keys() else replace(device, next_at=now)


def _complete(device: Inquired, now: float) -> Inquired:
    text = "".join(device.parts[number] for number in range(device.count))
    if sha256(text.encode()).hexdigest() != device.digest:
        damaged = device.damaged + 1
        if damaged >= MAX_DAMAGED:
            return replace(device, status=Status.FAILED, parts={}, detail="its answer arrives damaged")
        return replace(device, parts={}, damaged=damaged, next_at=now)
    document = _document(text)
    if document is None:
        return replace(device, status=Status.FAILED, parts={}, detail="its answer is not a JSON object")
    return replace(device, status=Status.ANSWERED, document=document, detail="", parts={})


def _document(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _with(inquiry: Inquiry, device: Inquired) -> Inquiry:
    return replace(inquiry, devices={**inquiry.devices, device.device: device})
