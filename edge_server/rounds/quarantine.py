"""Strikes and quarantine in a federation: refusals are recorded, quarantined devices are not planned."""

from dataclasses import replace
from itertools import islice

from edge_server.rounds import event_entry, events
from edge_server.rounds.fleet import Device
from edge_server.rounds.reputation import ROLLED_BACK, Reputation, quarantined_devices, struck
from edge_server.rounds.state import Federation, Step
from schemas.errors import Reason
from schemas.messages import BlobRequest, Death

ASK_AT_S = (0.0, 4.0, 12.0, 30.0, 60.0)  # Seconds of doubt at which a device is asked
LOST_AFTER_S = 75.0
"""Seconds of doubt after which a device is lost; its attempts to connect have shorter pauses."""
ASKED_AT_ONCE = 500  # Devices asked per tick
NO_BLOB = "0" * 64
MAX_UNANSWERED = 2  # Deadlines in a row, without any message between them, after which a device is lost


def doubt_all(federation: Federation, now: float) -> Federation:
    """Known devices that only the broker states to be connected are asked, and the silent ones are lost."""
    fleet = federation.fleet
    for device in list(fleet.present()):
        fleet = fleet.doubt(device, now)
    return replace(federation, fleet=fleet)


def miss_deadline(federation: Federation, device: str, now: float) -> Step:
    """A device has answered no offer of its task until the deadline."""
    known = federation.fleet.devices.get(device)
    if known is None or not known.alive:
        return federation, []
    federation = replace(federation, fleet=federation.fleet.unheard(device))
    if known.unanswered + 1 < MAX_UNANSWERED:
        return federation, []
    return _lose(federation, known, f"silent until {MAX_UNANSWERED} deadlines in a row", now)


def tick(federation: Federation, now: float) -> Step:
    """Ask doubted devices again, and give up those that have not answered for too long."""
    if not federation.fleet.doubts:
        return federation, []
    commands: list[events.Command] = []
    doubted = [(device, device.doubted) for device in federation.fleet.alive() if device.doubted]
    due = (
        device
        for device, doubt in doubted
        if doubt.asked < len(ASK_AT_S) and now >= doubt.since + ASK_AT_S[doubt.asked]
    )
    for device in islice(due, ASKED_AT_ONCE):
        federation = replace(federation, fleet=federation.fleet.with_question(device))
        commands.append(question_device(federation, device.name))
    for device, doubt in doubted:
        if now >= doubt.since + LOST_AFTER_S:
            federation, notes = _lose(federation, device, "no answer since the server's reconnect", now)
            commands += notes
    return federation, commands


def _lose(federation: Federation, device: Device, why: str, now: float) -> Step:
    death = Death(federation=federation.name, device=device.name, session=device.session)
    lost = events.Note("lost", device.name, detail=why, kind=event_entry.EventKind.LOSS)
    return replace(federation, fleet=federation.fleet.with_death(death, now)), [lost]


def question_device(federation: Federation, device: str) -> events.Command:
    """Request a blob that does not exist; a device that is there refuses at once and names the digest."""
    newcomers = federation.fleet.newcomers
    digest = NO_BLOB if newcomers is None else newcomers.question(device)
    return events.Send(
        device, BlobRequest(federation=federation.name, device=device, digest=digest, first=0, count=1)
    )


def strike(federation: Federation, device: str, reason: Reason) -> Step:
    """Count a refusal against a known device; unknown devices are never planned."""
    if device not in federation.fleet.devices:
        return federation, []
    rules = federation.rules.reputation
    reputations = struck(federation.reputations, device, federation.round, reason, rules)
    if reputations is federation.reputations:
        return federation, []
    commands: list[events.Command] = [events.RecordStrike(device, federation.round, reason)]
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
    commands: list[events.Command] = [events.RecordStrike(key, federation.round, reason)]
    if quarantine_end(after, key) != quarantine_end(federation, key):
        commands.append(events.Note("quarantined", site, Reason.QUARANTINED, _why(after, key)))
    return after, commands


def quarantine_of(federation: Federation, device: str) -> Reputation | None:
    """The reputation for which a device is in quarantine: its own, or its site's; None if it is not."""
    site = federation.sites.of(device)
    for key in (device, *([site_key(site)] if site else ())):
        if quarantine_end(federation, key) is not None:
            return federation.reputations[key]
    return None


def announce_quarantine(federation: Federation, device: str) -> list[events.Command]:
    note = events.Note("quarantined", device, Reason.QUARANTINED, _why(federation, device))
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


def quarantine_refusal(federation: Federation, device: str) -> events.Command:
    detail = _why(federation, device)
    return events.send_refusal(federation.name, device, Reason.QUARANTINED, detail, run=federation.run)


def _why(federation: Federation, device: str) -> str:
    reputation = federation.reputations[device]
    why = reputation.cause if ROLLED_BACK in reputation.reasons.values() else "too many updates were refused"
    return f"left out until round {quarantine_end(federation, device)}: {why}"
