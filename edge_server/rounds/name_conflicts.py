"""Two devices with one name: people are notified once, the later device at each of its births."""

from dataclasses import replace

from edge_server.rounds import name_sightings
from edge_server.rounds.events import Command, Note, send_refusal
from edge_server.rounds.fleet import Device
from edge_server.rounds.name_sightings import CERTAIN, Claimants
from edge_server.rounds.state import Federation, Step
from schemas.messages import Birth
from schemas.values import Reason


def check_name(federation: Federation, birth: Birth, known: Device | None) -> Step:
    if known is None:
        return federation, []
    sightings = name_sightings.record_birth(federation.sightings, birth, (known.instance, known.origin))
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
        commands.append(send_refusal(birth.federation, birth.device, Reason.SAME_NAME, first, **named))
    # Each device counts its own connections, so session numbers do not say which of the two is connected.
    return replace(federation, fleet=federation.fleet.with_session(birth.device, birth.session)), commands


def _describe_claimant(token: str, claimants: Claimants) -> str:
    return f"{claimants.origins.get(token) or 'a machine unknown'} ({token})"
