"""Devices that have said that they are there and have not answered anything yet: none of them is planned.

Where the broker lets anyone in, a birth is a claim of anybody, and retained births of devices that are long
gone say the same. So the server asks each newcomer for a blob that nobody has; a device that is there refuses
at once, with that very name, which only the owner of its topics has read. Who answers joins the fleet, who
does not is forgotten: made-up devices take no room from others and spend nobody's round.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemas.messages import Birth, Death

MAX_NEWCOMERS = 5000
"""So many are waited for at a time; with `SOON_S` this bounds how many new names are taken per second."""
ASK_AT_S = (0.0, 4.0, 12.0)
"""When a newcomer is asked, in seconds after its birth."""
FORGET_S = 24.0
SOON_S = 5.0
"""Where no more newcomers are taken, those that have had so much time to answer make room."""
NOTE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Newcomer:
    """One that was born at `since`, in seconds, and was asked so often."""

    birth: Birth
    since: float
    asked: int = 1


@dataclass(frozen=True)
class Newcomers:
    """Those that are waited for, whoever came first at the front; the `secret` makes questions unguessable.

    `silent` have not answered since the last word on that, which was `noted_at`; `last` is one of them.
    """

    secret: str
    waiting: Mapping[str, Newcomer] = field(default_factory=dict)
    silent: int = 0
    last: str = ""
    noted_at: float = -math.inf
    most: int = field(default_factory=lambda: MAX_NEWCOMERS)

    def question(self, device: str) -> str:
        """The digest that this device is asked for."""
        return hashlib.sha256(f"{self.secret} {device}".encode()).hexdigest()


def add_newcomer(newcomers: Newcomers, birth: Birth, now: float) -> tuple[Newcomers, bool]:
    """Wait for the answer of a newcomer; returns whether there was room, and it is to be asked now."""
    known = newcomers.waiting.get(birth.device)
    if known is not None:
        newer = birth.session >= known.birth.session
        return (_with(newcomers, replace(known, birth=birth)) if newer else newcomers), False
    roomy = _roomy(newcomers, now)
    if len(roomy.waiting) >= roomy.most:
        return newcomers, False
    return _with(roomy, Newcomer(birth, now)), True


def remove_newcomer(newcomers: Newcomers, device: str) -> Newcomers:
    """Wait for this one no more."""
    if device not in newcomers.waiting:
        return newcomers
    left = dict(newcomers.waiting)
    del left[device]
    return replace(newcomers, waiting=left)


def remove_dead(newcomers: Newcomers, death: Death) -> Newcomers:
    """Take a last will; one of an older session changes nothing."""
    known = newcomers.waiting.get(death.device)
    stale = known is None or death.session < known.birth.session
    return newcomers if stale else remove_newcomer(newcomers, death.device)


def due_newcomers(newcomers: Newcomers, now: float) -> tuple[Newcomers, tuple[str, ...]]:
    """Forget who has had its time, and say who is to be asked again."""
    forgotten = _before(newcomers, now - FORGET_S)
    ask = tuple(
        name
        for name, one in newcomers.waiting.items()
        if one.asked < len(ASK_AT_S) and one.since + ASK_AT_S[one.asked] <= now and name not in forgotten
    )
    if not ask and not forgotten:
        return newcomers, ()
    again = {name: replace(newcomers.waiting[name], asked=newcomers.waiting[name].asked + 1) for name in ask}
    return _without(replace(newcomers, waiting={**newcomers.waiting, **again}), forgotten), ask


def count_silent(newcomers: Newcomers, now: float) -> tuple[Newcomers, int]:
    """How many have not answered, where it is time for a word on that; else 0."""
    if not newcomers.silent or now < newcomers.noted_at + NOTE_EVERY_S:
        return newcomers, 0
    return replace(newcomers, silent=0, noted_at=now), newcomers.silent


def _with(newcomers: Newcomers, one: Newcomer) -> Newcomers:
    return replace(newcomers, waiting={**newcomers.waiting, one.birth.device: one})


def _roomy(newcomers: Newcomers, now: float) -> Newcomers:
    """With room for more, if somebody has had time enough to answer."""
    if len(newcomers.waiting) < newcomers.most:
        return newcomers
    return _without(newcomers, _before(newcomers, now - SOON_S))


def _before(newcomers: Newcomers, since: float) -> set[str]:
    """Who came until then; whoever came first is looked at first."""
    names = set()
    for name, one in newcomers.waiting.items():
        if one.since > since:
            break
        names.add(name)
    return names


def _without(newcomers: Newcomers, names: set[str]) -> Newcomers:
    if not names:
        return newcomers
    left = {name: one for name, one in newcomers.waiting.items() if name not in names}
    return replace(newcomers, waiting=left, silent=newcomers.silent + len(names), last=max(names))
