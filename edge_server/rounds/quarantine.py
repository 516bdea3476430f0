"""Strikes and quarantine in a federation: strikes are recorded, quarantined devices are not planned."""

from __future__ import annotations

from dataclasses import replace

from edge_server.rounds.events import Command, Note, Send
from edge_server.rounds.events import RecordStrike as StrikeCommand
from edge_server.rounds.fleet import Device
from edge_server.rounds.reputation import ROLLED_BACK, quarantined, struck
from edge_server.rounds.state import Federation, Step
from schemas.messages import Refusal
from schemas.values import Reason


def strike(federation: Federation, device: str, reason: Reason) -> Step:
    """Count a refusal against a device that is known; one that is not cannot be planned anyway."""
    if device not in federation.fleet.devices:
        return federation, []
    rules = federation.rules.reputation
    reputations = struck(federation.reputations, device, federation.round, reason, rules)
    if reputations is federation.reputations:
        return federation, []
    commands: list[Command] = [StrikeCommand(device, federation.round, reason)]
    after = replace(federation, reputations=reputations)
    if quarantine_end(after, device) != quarantine_end(federation, device):
        commands += announce_quarantine(after, device)
    return after, commands


def announce_quarantine(federation: Federation, device: str) -> list[Command]:
    """A device is in quarantine from now on: people are told, and so is the device."""
    note = Note("quarantined", device, Reason.QUARANTINED, _why(federation, device))
    return [note, quarantine_refusal(federation, device)]


def trusted_devices(federation: Federation) -> tuple[Device, ...]:
    """The devices that are there and may be planned, by name."""
    out = quarantined(federation.reputations, federation.round)
    return tuple(one for one in federation.fleet.able() if one.name not in out and not one.misfit)


def quarantine_end(federation: Federation, device: str) -> int | None:
    """The last round that the device is left out of; None where it is not in quarantine."""
    reputation = federation.reputations.get(device)
    return reputation.until if reputation is not None and reputation.quarantined(federation.round) else None


def shortage_reason(federation: Federation) -> str:
    """Why no round can be planned although enough devices are there; empty where it can.

    A device whose classes are unknown stays so until it is started anew, and quarantine is measured in
    rounds: waiting would end neither. Such a round is abandoned, which leaves time for others to join, and
    after several attempts ends the run with these words. The model is worth more than the run: nobody is let
    out early.
    """
    there, left = len(federation.fleet.able()), len(trusted_devices(federation))
    wanted = max(1, federation.rules.min_clients)
    if left >= wanted or there < wanted:
        return ""
    misfits = [one for one in federation.fleet.able() if one.misfit]
    if misfits:
        which = f"the data of {len(misfits)} of {there} devices does not fit"
        return f"{which} and min-clients is {wanted}: {misfits[0].name}: {misfits[0].misfit}"
    return f"{there - left} of {there} devices are in quarantine and min-clients is {wanted}"


def quarantine_refusal(federation: Federation, device: str) -> Command:
    """Tell a device that it is in quarantine, and until when."""
    return Send(
        device,
        Refusal(
            federation=federation.name,
            device=device,
            run=federation.run,
            reason=Reason.QUARANTINED,
            detail=_why(federation, device),
        ),
    )


def _why(federation: Federation, device: str) -> str:
    reputation = federation.reputations[device]
    why = reputation.cause if ROLLED_BACK in reputation.reasons.values() else "too many updates were refused"
    return f"left out until round {quarantine_end(federation, device)}: {why}"
