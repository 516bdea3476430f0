"""Admission to the fleet: newcomers are asked, and join once they have answered."""

from dataclasses import replace

from edge_server.rounds import newcomers as fresh
from edge_server.rounds import participants
from edge_server.rounds.events import Command, Note, send_refusal
from edge_server.rounds.fleet import Device
from edge_server.rounds.newcomers import Newcomers
from edge_server.rounds.participant import AT_WORK
from edge_server.rounds.participants import CERTAIN, Claimants
from edge_server.rounds.quarantine import question_device
from edge_server.rounds.state import Federation, Step
from schemas import errors, messages


def check_name(federation: Federation, birth: messages.Birth, known: Device | None) -> Step:
    """Two devices with one name: people are notified once, the later device at each of its births."""
    if known is None:
        return federation, []
    sightings = participants.record_birth(federation.sightings, birth, (known.instance, known.origin))
    if sightings is federation.sightings:
        return federation, []
    claimants = sightings[birth.device]
    federation = replace(federation, sightings=sightings)
    if not claimants.certain:
        return federation, []
    commands: list[Command] = []
    if claimants.returns == CERTAIN:
        detail = (
            f"{_describe_claimant(claimants.current, claimants)} and "
            f"{_describe_claimant(claimants.before, claimants)}"
        )
        commands.append(Note("shares its name with another device:", birth.device, detail=detail))
    if claimants.later_is_there:
        first = f"{_describe_claimant(claimants.before, claimants)} came first under this name"
        named = {"instance": birth.instance}
        commands.append(send_refusal(birth.federation, birth.device, errors.Reason.SAME_NAME, first, **named))
    # Each device counts its own connections, so session numbers do not say which of the two is connected.
    return replace(federation, fleet=federation.fleet.with_session(birth.device, birth.session)), commands


def _describe_claimant(token: str, claimants: Claimants) -> str:
    return f"{claimants.origins.get(token) or 'a machine unknown'} ({token})"


def question_newcomer(federation: Federation, birth: messages.Birth, now: float) -> Step:
    """Handle the birth of an unknown device: ask it, or tell it to repeat the birth later."""
    newcomers = _newcomers(federation)
    taken, asks = fresh.add_newcomer(newcomers, birth, now)
    if asks:
        return _with(federation, taken), [question_device(federation, birth.device)]
    if birth.device in taken.waiting:
        return _with(federation, taken), []
    later = f"{newcomers.most} new devices are being admitted: repeat the birth later"
    return federation, [send_refusal(birth.federation, birth.device, errors.Reason.TOO_MANY_REQUESTS, later)]


def answered_birth(federation: Federation, refusal: messages.Refusal) -> messages.Birth | None:
    """The birth of a newcomer, if this refusal answers its question."""
    newcomers = federation.fleet.newcomers
    asked = newcomers.waiting.get(refusal.device) if newcomers is not None else None
    if newcomers is None or asked is None or refusal.digest != newcomers.question(refusal.device):
        return None
    return asked.birth


def admit(federation: Federation, birth: messages.Birth) -> Federation:
    """The federation with room for the newcomer that has answered."""
    fleet = replace(federation.fleet, newcomers=fresh.remove_newcomer(_newcomers(federation), birth.device))
    if not fleet.has_room_for(birth.device):
        fleet = fleet.without_lost({part.device for part in federation.participants.having(AT_WORK)})
    return replace(federation, fleet=fleet)


def tick(federation: Federation, now: float) -> Step:
    """Ask silent newcomers again, forget those whose time is over, and note their number at intervals."""
    if federation.fleet.newcomers is None:
        return federation, []
    left, again = fresh.due_newcomers(federation.fleet.newcomers, now)
    noted, silent = fresh.count_silent(left, now)
    commands: list[Command] = [question_device(federation, device) for device in again]
    if silent:
        detail = f"{silent} sent a birth and did not answer, the last is {noted.last}"
        commands.append(Note("devices passed over:", detail=detail))
    return (_with(federation, noted) if noted is not federation.fleet.newcomers else federation), commands


def is_unknown(federation: Federation, device: str) -> bool:
    """Whether a device that sends messages is unknown: its birth was refused, or did not arrive."""
    newcomers = federation.fleet.newcomers
    return newcomers is not None and federation.fleet.is_newcomer(device) and device not in newcomers.waiting


def misses_birth(federation: Federation, device: str) -> bool:
    """Whether a device that sends messages is unknown, or counts as lost: its birth did not arrive."""
    known = federation.fleet.devices.get(device)
    return is_unknown(federation, device) if known is None else not known.alive


def ask_for_birth(federation: Federation, device: str) -> Command:
    detail = "not known here, or lost: repeat the birth"
    return send_refusal(federation.name, device, errors.Reason.TOO_MANY_REQUESTS, detail)


def _newcomers(federation: Federation) -> Newcomers:
    assert federation.fleet.newcomers is not None
    return federation.fleet.newcomers


def _with(federation: Federation, newcomers: Newcomers) -> Federation:
    return replace(federation, fleet=replace(federation.fleet, newcomers=newcomers))
