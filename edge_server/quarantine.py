"""What conduct means for rounds: a strike is kept and told, and whoever is in quarantine is not planned."""

from __future__ import annotations

from dataclasses import replace

from edge_server.conduct import quarantined, struck
from edge_server.federation import Federation, Step
from edge_server.fleet import Device
from edge_server.round_events import Command, Note, Send
from edge_server.round_events import Strike as StrikeCommand
from schemas.messages import Refusal
from schemas.values import Reason


def strike(federation: Federation, device: str, reason: Reason) -> Step:
    """Count a refusal against a device that is known; one that is not cannot be planned anyway."""
    if device not in federation.fleet.devices:
        return federation, []
    rules = federation.rules.conduct
    conducts = struck(federation.conducts, device, federation.round, reason, rules)
    if conducts is federation.conducts:
        return federation, []
    commands: list[Command] = [StrikeCommand(device, federation.round, reason)]
    after = replace(federation, conducts=conducts)
    if quarantine_end(after, device) != quarantine_end(federation, device):
        commands += [
            Note("quarantined", device, Reason.QUARANTINED, _why(after, device)),
            told(after, device),
        ]
    return after, commands


def trusted(federation: Federation) -> tuple[Device, ...]:
    """The devices that are there and may be planned, by name."""
    out = quarantined(federation.conducts, federation.round)
    return tuple(device for device in federation.fleet.able() if device.name not in out)


def quarantine_end(federation: Federation, device: str) -> int | None:
    """The last round that the device is left out of; None where it is not in quarantine."""
    conduct = federation.conducts.get(device)
    return conduct.until if conduct is not None and conduct.quarantined(federation.round) else None


def too_few(federation: Federation) -> str:
    """Why no round can be planned although enough devices are there; empty where it can.

    Quarantine is measured in rounds, so waiting would not end it: such a round is abandoned, which leaves
    time for others to join, and after several attempts ends the run with these words. The model is worth
    more than the run: nobody is let out early.
    """
    there, left = len(federation.fleet.able()), len(trusted(federation))
    wanted = max(1, federation.rules.min_clients)
    if left >= wanted or there < wanted:
        return ""
    return f"{there - left} of {there} devices are in quarantine and min-clients is {wanted}"


def told(federation: Federation, device: str) -> Command:
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
    return f"left out until round {quarantine_end(federation, device)}: too many updates were refused"
