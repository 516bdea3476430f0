"""From a birth to a device of the fleet: newcomers are asked, and join once they have answered."""

from __future__ import annotations

from dataclasses import replace

from edge_server.rounds import newcomers as fresh
from edge_server.rounds.events import Command, Note, Send
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.newcomers import Newcomers
from edge_server.rounds.participant import AT_WORK
from edge_server.rounds.state import Federation, Step
from schemas.messages import Birth, BlobRequest, Refusal
from schemas.values import Reason


def question_newcomer(federation: Federation, birth: Birth, now: float) -> Step:
    """Someone says that this device is there: ask it, or tell it to say so again later."""
    newcomers = _newcomers(federation)
    taken, asks = fresh.add_newcomer(newcomers, birth, now)
    if asks:
        return _with(federation, taken), [_question(federation, taken, birth.device)]
    if birth.device in taken.waiting:
        return _with(federation, taken), []
    return federation, [_later(birth, newcomers.most)]


def answered_birth(federation: Federation, refusal: Refusal) -> Birth | None:
    """What a newcomer has said of itself, if this is its answer."""
    newcomers = federation.fleet.newcomers
    one = newcomers.waiting.get(refusal.device) if newcomers is not None else None
    if newcomers is None or one is None or refusal.digest != newcomers.question(refusal.device):
        return None
    return one.birth


def admit(federation: Federation, birth: Birth) -> Federation:
    """With room for the one that has answered, which is waited for no more."""
    fleet = replace(federation.fleet, newcomers=fresh.remove_newcomer(_newcomers(federation), birth.device))
    if not fleet.has_room_for(birth.device):
        fleet = fleet.without_lost({one.device for one in federation.participants.having(AT_WORK)})
    return replace(federation, fleet=fleet)


def tick(federation: Federation, now: float) -> Step:
    """Ask again who has not answered, forget who never did, and say how many those are, now and then."""
    if federation.fleet.newcomers is None:
        return federation, []
    left, again = fresh.due_newcomers(federation.fleet.newcomers, now)
    noted, silent = fresh.count_silent(left, now)
    commands: list[Command] = [_question(federation, noted, device) for device in again]
    if silent:
        said = f"{silent} said to be there and did not answer, the last is {noted.last}"
        commands.append(Note("devices passed over:", detail=said))
    return (_with(federation, noted) if noted is not federation.fleet.newcomers else federation), commands


def is_unknown(federation: Federation, device: str) -> bool:
    """Whether nothing is known of a device that speaks: its birth was not taken, or did not come."""
    newcomers = federation.fleet.newcomers
    return newcomers is not None and federation.fleet.doubts(device) and device not in newcomers.waiting


def ask_for_birth(federation: Federation, device: str) -> Command:
    """Tell such a device to say its birth again."""
    detail = "not known here: say the birth again"
    return Send(
        device,
        Refusal(federation=federation.name, device=device, reason=Reason.TOO_MANY_REQUESTS, detail=detail),
    )


def _newcomers(federation: Federation) -> Newcomers:
    assert federation.fleet.newcomers is not None
    return federation.fleet.newcomers


def _with(federation: Federation, newcomers: Newcomers) -> Federation:
    fleet: Fleet = replace(federation.fleet, newcomers=newcomers)
    return replace(federation, fleet=fleet)


def _question(federation: Federation, newcomers: Newcomers, device: str) -> Command:
    asked = newcomers.question(device)
    return Send(
        device, BlobRequest(federation=federation.name, device=device, digest=asked, first=0, count=1)
    )


def _later(birth: Birth, most: int) -> Command:
    refusal = Refusal(
        federation=birth.federation,
        device=birth.device,
        reason=Reason.TOO_MANY_REQUESTS,
        detail=f"{most} new devices are waited for: say the birth again in a while",
    )
    return Send(birth.device, refusal)
