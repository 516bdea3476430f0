"""Strikes and quarantine in a federation: refusals are recorded, quarantined devices are not planned."""

from dataclasses import replace

from edge_server.rounds.events import Command, Note, RecordStrike, send_refusal
from edge_server.rounds.fleet import Device
from edge_server.rounds.reputation import ROLLED_BACK, Reputation, quarantined_devices, struck
from edge_server.rounds.state import Federation, Step
from schemas.values import Reason


def strike(federation: Federation, device: str, reason: Reason) -> Step:
    """Count a refusal against a known device; unknown devices are never planned."""
    if device not in federation.fleet.devices:
        return federation, []
    rules = federation.rules.reputation
    reputations = struck(federation.reputations, device, federation.round, reason, rules)
    if reputations is federation.reputations:
        return federation, []
    commands: list[Command] = [RecordStrike(device, federation.round, reason)]
    after = replace(federation, reputations=reputations)
    if quarantine_end(after, device) != quarantine_end(federation, device):
        commands += announce_quarantine(after, device)
    return after, commands


def site_key(site: str) -> str:
    """The name of a site among the reputations; no device can have it."""
    return f"site {site}"


def strike_site(federation: Federation, site: str, reason: Reason) -> Step:
    """Count a refusal against a site, whose devices are not planned while it is in quarantine."""
    key, rules = site_key(site), federation.rules.reputation
    reputations = struck(federation.reputations, key, federation.round, reason, rules)
    if reputations is federation.reputations:
        return federation, []
    after = replace(federation, reputations=reputations)
    commands: list[Command] = [RecordStrike(key, federation.round, reason)]
    if quarantine_end(after, key) != quarantine_end(federation, key):
        commands.append(Note("quarantined", site, Reason.QUARANTINED, _why(after, key)))
    return after, commands


def quarantine_of(federation: Federation, device: str) -> Reputation | None:
    """The reputation for which a device is in quarantine: its own, or its site's; None if it is not."""
    site = federation.sites.of(device)
    for key in (device, *([site_key(site)] if site else ())):
        if quarantine_end(federation, key) is not None:
            return federation.reputations[key]
    return None


def announce_quarantine(federation: Federation, device: str) -> list[Command]:
    note = Note("quarantined", device, Reason.QUARANTINED, _why(federation, device))
    return [note, quarantine_refusal(federation, device)]


def trusted_devices(federation: Federation) -> tuple[Device, ...]:
    """The connected devices that may be planned, sorted by name."""
    able = [device for device in federation.fleet.able() if not device.misfit]
    if not quarantined_devices(federation.reputations, federation.round):
        return tuple(able)
    return tuple(device for device in able if quarantine_of(federation, device.name) is None)


def quarantine_end(federation: Federation, device: str) -> int | None:
    """The last round of the device's quarantine; None if it is not in quarantine."""
    reputation = federation.reputations.get(device)
    return (
        reputation.until if reputation is not None and reputation.is_quarantined(federation.round) else None
    )


def shortage_reason(federation: Federation) -> str:
    """Why no round can be planned although enough devices are connected; empty if it can.

    Waiting ends neither unknown classes, which last until the device is restarted, nor a quarantine, which
    is measured in rounds. Such a round is abandoned, so that other devices have time to join; after several
    attempts the run ends with this reason. No quarantine is shortened: the model matters more than the run.
    """
    there, left = len(federation.fleet.able()), len(trusted_devices(federation))
    wanted = max(1, federation.rules.min_clients)
    if left >= wanted or there < wanted:
        return ""
    misfits = [device for device in federation.fleet.able() if device.misfit]
    if misfits:
        which = f"the data of {len(misfits)} of {there} devices does not fit"
        return f"{which} and min-clients is {wanted}: {misfits[0].name}: {misfits[0].misfit}"
    return f"{there - left} of {there} devices are in quarantine and min-clients is {wanted}"


def quarantine_refusal(federation: Federation, device: str) -> Command:
    detail = _why(federation, device)
    return send_refusal(federation.name, device, Reason.QUARANTINED, detail, run=federation.run)


def _why(federation: Federation, device: str) -> str:
    reputation = federation.reputations[device]
    why = reputation.cause if ROLLED_BACK in reputation.reasons.values() else "too many updates were refused"
    return f"left out until round {quarantine_end(federation, device)}: {why}"
