"""Devices that have sent a birth but have not answered yet; none of them is planned.

If the broker admits anyone, a birth proves nothing, and retained births of devices long gone look the same.
So the server requests from each newcomer a blob that does not exist; a real device refuses at once and names
the digest, which only a reader of its topics knows. Devices that answer join the fleet; the others are
forgotten, so that invented devices take no room from real ones and delay no round.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.messages import Birth, Death

MAX_NEWCOMERS = 5000
"""Newcomers waiting at a time; with `SOON_S` this bounds the new names accepted per second."""
ASK_AT_S = (0.0, 4.0, 12.0)  # Seconds after its birth at which a newcomer is asked
FORGET_S = 24.0
SOON_S = 5.0  # Seconds after which an unanswered newcomer may make room for another, if there is none
NOTE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Newcomer:
    """A device whose birth came at `since`, in seconds, and that was asked `asked` times."""

    birth: Birth
    since: float
    asked: int = 1


@dataclass(frozen=True)
class Newcomers:
    """The newcomers, in order of arrival; the `secret` makes their questions unguessable.

    `silent` counts those forgotten since the last note on it, at `noted_at`; `last` is one of them.
    """

    secret: str
    waiting: Mapping[str, Newcomer] = field(default_factory=dict)
    silent: int = 0
    last: str = ""
    noted_at: float = -math.inf
    most: int = field(default_factory=lambda: MAX_NEWCOMERS)

    def question(self, device: str) -> str:
        return hashlib.sha256(f"{self.secret} {device}".encode()).hexdigest()


def add_newcomer(newcomers: Newcomers, birth: Birth, now: float) -> tuple[Newcomers, bool]:
    """Add a newcomer; returns whether it is new and must be asked now."""
    known = newcomers.waiting.get(birth.device)
    if known is not None:
        newer = birth.session >= known.birth.session
        return (_with(newcomers, replace(known, birth=birth)) if newer else newcomers), False
    roomy = _roomy(newcomers, now)
    if len(roomy.waiting) >= roomy.most:
        return newcomers, False
    return _with(roomy, Newcomer(birth, now)), True


def remove_newcomer(newcomers: Newcomers, device: str) -> Newcomers:
    left = {name: newcomer for name, newcomer in newcomers.waiting.items() if name != device}
    return replace(newcomers, waiting=left)


def remove_dead(newcomers: Newcomers, death: Death) -> Newcomers:
    """Remove a newcomer after its last will, unless the will is of an older session."""
    known = newcomers.waiting.get(death.device)
    stale = known is None or death.session < known.birth.session
    return newcomers if stale else remove_newcomer(newcomers, death.device)


def due_newcomers(newcomers: Newcomers, now: float) -> tuple[Newcomers, tuple[str, ...]]:
    """Forget newcomers whose time is over; returns those to ask again."""
    forgotten = _before(newcomers, now - FORGET_S)
    ask = tuple(
        name
        for name, known in newcomers.waiting.items()
        if known.asked < len(ASK_AT_S) and known.since + ASK_AT_S[known.asked] <= now
        if name not in forgotten
    )
    if not ask and not forgotten:
        return newcomers, ()
    again = {name: replace(newcomers.waiting[name], asked=newcomers.waiting[name].asked + 1) for name in ask}
    return _without(replace(newcomers, waiting={**newcomers.waiting, **again}), forgotten), ask


def count_silent(newcomers: Newcomers, now: float) -> tuple[Newcomers, int]:
    """The number of newcomers that did not answer, if a note on it is due; else 0."""
    if not newcomers.silent or now < newcomers.noted_at + NOTE_EVERY_S:
        return newcomers, 0
    return replace(newcomers, silent=0, noted_at=now), newcomers.silent


def _with(newcomers: Newcomers, newcomer: Newcomer) -> Newcomers:
    return replace(newcomers, waiting={**newcomers.waiting, newcomer.birth.device: newcomer})


def _roomy(newcomers: Newcomers, now: float) -> Newcomers:
    """With room for more, if newcomers older than `SOON_S` can be forgotten."""
    if len(newcomers.waiting) < newcomers.most:
        return newcomers
    return _without(newcomers, _before(newcomers, now - SOON_S))


def _before(newcomers: Newcomers, since: float) -> set[str]:
    """The newcomers that arrived until then; they are in order of arrival."""
    names = set()
    for name, known in newcomers.waiting.items():
        if known.since > since:
            break
        names.add(name)
    return names


def _without(newcomers: Newcomers, names: set[str]) -> Newcomers:
    if not names:
        return newcomers
    left = {name: known for name, known in newcomers.waiting.items() if name not in names}
    return replace(newcomers, waiting=left, silent=newcomers.silent + len(names), last=max(names))
