"""Answers requests for diagnostics, as a pure state machine: `step(state, event, now)`.

One request is worked on at a time. Its answer is kept for a while, so that a requester can ask for the parts
that it lacks; what asks for more than the limits allow gets a refusal that says when to ask again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType

from schemas.messages import DiagnosticPart, DiagnosticReceipt, DiagnosticRefusal, DiagnosticRequest, remote


@dataclass(frozen=True)
class Bucket:
    """At most `burst` at once, and one more every `every_s` seconds; `tokens` were left at `at`."""

    burst: int
    every_s: float
    tokens: float
    at: float = 0.0

    @staticmethod
    def full(burst: int, every_s: float) -> "Bucket":
        return Bucket(burst, every_s, float(burst))

    def with_refill(self, now: float) -> "Bucket":
        gained = max(0.0, now - self.at) / self.every_s
        return replace(self, tokens=min(float(self.burst), self.tokens + gained), at=now)

    def missing_s(self, now: float) -> float:
        """Seconds until the next token; 0 if there is one."""
        return max(0.0, 1.0 - self.with_refill(now).tokens) * self.every_s

    def take(self, now: float, count: int = 1) -> "Bucket":
        filled = self.with_refill(now)
        return replace(filled, tokens=max(0.0, filled.tokens - count))


_KINDS = {
    remote.Diagnostic.DOCTOR: Bucket.full(2, 300.0),
    remote.Diagnostic.BUNDLE: Bucket.full(2, 300.0),
    remote.Diagnostic.LOGS: Bucket.full(6, 20.0),
    remote.Diagnostic.PROFILE: Bucket.full(4, 60.0),
    remote.Diagnostic.CRASH: Bucket.full(4, 60.0),
}


@dataclass(frozen=True)
class Limits:
    """The buckets of one device: `kinds` and `total` of collections, `parts` and `refusals` of messages."""

    kinds: Mapping[remote.Diagnostic, Bucket] = field(default_factory=lambda: MappingProxyType(_KINDS))
    total: Bucket = Bucket(12, 20.0, 12.0)
    parts: Bucket = Bucket(64, 0.5, 64.0)
    refusals: Bucket = Bucket(20, 1.0, 20.0)

    def missing_s(self, what: remote.Diagnostic, now: float) -> float:
        """Seconds until this diagnostic may be asked for again; 0 if it may now."""
        return max(self.kinds[what].missing_s(now), self.total.missing_s(now))

    def with_collection(self, what: remote.Diagnostic, now: float) -> "Limits":
        kinds = MappingProxyType({**self.kinds, what: self.kinds[what].take(now)})
        return replace(self, kinds=kinds, total=self.total.take(now))


KEPT_S = 300.0  # seconds for which an answer is kept after the last request for it
LONGEST_COLLECTION_S = 300.0
BUSY_AGAIN_S = 5.0


@dataclass(frozen=True)
class Answer:
    """The text that was collected for a request; it is forgotten at `until`."""

    request: str
    text: str
    until: float

    @property
    def parts(self) -> int:
        return -(-len(self.text) // remote.MAX_PART_CHARS)


@dataclass(frozen=True)
class Diagnostics:
    """The state: the request that is `open` since `since`, and the last `answer`.

    Unless `enabled` by the owner every request is refused.
    """

    federation: str
    device: str
    enabled: bool = True
    limits: Limits = field(default_factory=Limits)
    open: DiagnosticRequest | None = None
    since: float = 0.0
    answer: Answer | None = None


@dataclass(frozen=True)
class Requested:
    """Event: a request has arrived."""

    request: DiagnosticRequest


@dataclass(frozen=True)
class Collected:
    """Event: the text for a request is there, ASCII JSON; or `failure` says why it is not."""

    request: str
    text: str = ""
    failure: str = ""


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


Event = Requested | Collected | Tick


@dataclass(frozen=True)
class Collect:
    """Command: collect what is requested; ends in `Collected`."""

    request: DiagnosticRequest


@dataclass(frozen=True)
class Abandon:
    """Command: end the collection that takes too long."""


@dataclass(frozen=True)
class Send:
    """Command: publish a message to the requester."""

    message: DiagnosticReceipt | DiagnosticPart | DiagnosticRefusal


Command = Collect | Abandon | Send
Step = tuple[Diagnostics, list[Command]]


def step(state: Diagnostics, event: Event, now: float) -> Step:
    match event:
        case Requested(request):
            return _on_request(state, request, now)
        case Collected():
            return _on_collected(state, event, now)
        case Tick():
            return _tick(state, now)


def _on_request(state: Diagnostics, request: DiagnosticRequest, now: float) -> Step:
    if not state.enabled:
        return _refuse(
            state, request, remote.DiagnosticObstacle.DISABLED, now, "disabled by the device's owner"
        )
    if state.answer is not None and state.answer.request == request.request:
        return _send_parts(state, state.answer, request.wanted, now)
    if state.open is not None and state.open.request == request.request:
        return state, [Send(_receipt(state, request))]
    if state.open is not None:
        detail = "another request is being answered"
        return _refuse(state, request, remote.DiagnosticObstacle.BUSY, now, detail, BUSY_AGAIN_S)
    if missing := state.limits.missing_s(request.what, now):
        detail = f"'{request.what}' was asked for too often"
        return _refuse(state, request, remote.DiagnosticObstacle.RATE_LIMITED, now, detail, missing)
    begun = replace(state, open=request, since=now, limits=state.limits.with_collection(request.what, now))
    return begun, [Send(_receipt(state, request)), Collect(request)]


def _on_collected(state: Diagnostics, event: Collected, now: float) -> Step:
    request = state.open
    if request is None or request.request != event.request:
        return state, []
    done = replace(state, open=None)
    failure = event.failure or _flaw(event.text)
    if failure:
        return _refuse(done, request, remote.DiagnosticObstacle.FAILED, now, failure)
    answer = Answer(request.request, event.text, now + KEPT_S)
    return _send_parts(replace(done, answer=answer), answer, request.wanted, now)


def _flaw(text: str) -> str:
    if not text:
        return "nothing was collected"
    if len(text) > remote.MAX_ANSWER_CHARS or not text.isascii():
        return f"an answer of {len(text)} characters cannot be sent"
    return ""


def _send_parts(state: Diagnostics, answer: Answer, wanted: tuple[int, ...], now: float) -> Step:
    """Send the wanted parts, a few at once; none while too many were sent in a short time."""
    numbers = [part for part in dict.fromkeys(wanted or range(answer.parts)) if part < answer.parts]
    allowed = min(remote.PARTS_AT_ONCE, int(state.limits.parts.with_refill(now).tokens))
    sent = numbers[:allowed]
    kept = replace(answer, until=now + KEPT_S)
    limits = replace(state.limits, parts=state.limits.parts.take(now, len(sent)))
    left = replace(state, answer=kept, limits=limits)
    return left, [Send(_part(state, answer, number)) for number in sent]


def _part(state: Diagnostics, answer: Answer, number: int) -> DiagnosticPart:
    return DiagnosticPart(
        federation=state.federation,
        device=state.device,
        request=answer.request,
        part=number,
        parts=answer.parts,
        digest=sha256(answer.text.encode()).hexdigest(),
        text=answer.text[number * remote.MAX_PART_CHARS : (number + 1) * remote.MAX_PART_CHARS],
    )


def _receipt(state: Diagnostics, request: DiagnosticRequest) -> DiagnosticReceipt:
    return DiagnosticReceipt(federation=state.federation, device=state.device, request=request.request)


def _refuse(
    state: Diagnostics,
    request: DiagnosticRequest,
    obstacle: remote.DiagnosticObstacle,
    now: float,
    detail: str,
    again_s: float | None = None,
) -> Step:
    """Refuse a request; a flood of them is not answered any more."""
    if state.limits.refusals.missing_s(now):
        return state, []
    refusal = DiagnosticRefusal(
        federation=state.federation,
        device=state.device,
        request=request.request,
        obstacle=obstacle,
        again_s=again_s,
        detail=detail[:500],
    )
    limits = replace(state.limits, refusals=state.limits.refusals.take(now))
    return replace(state, limits=limits), [Send(refusal)]


def _tick(state: Diagnostics, now: float) -> Step:
    if state.answer is not None and now >= state.answer.until:
        state = replace(state, answer=None)
    if state.open is None or now < state.since + LONGEST_COLLECTION_S:
        return state, []
    late = Collected(state.open.request, failure=f"not done after {LONGEST_COLLECTION_S:.0f} s")
    ended, commands = _on_collected(state, late, now)
    return ended, [Abandon(), *commands]
