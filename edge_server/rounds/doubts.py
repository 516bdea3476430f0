"""Known devices that only the broker states to be connected: they are asked, and the silent ones are lost.

No broker stores last wills: of a device that dies together with its broker the retained birth remains, and
no death comes. So devices are doubted after each reconnect of the server, and after a retained birth, until
they send something. A doubted device keeps its task, but is not planned.
"""

from dataclasses import replace
from itertools import islice

from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.events import Command, Note, Send
from edge_server.rounds.fleet import Device
from edge_server.rounds.state import Federation, Step
from schemas.messages import BlobRequest, Death

ASK_AT_S = (0.0, 4.0, 12.0, 30.0, 60.0)  # Seconds of doubt at which a device is asked
LOST_AFTER_S = 75.0
"""Seconds of doubt after which a device is lost; its attempts to connect have shorter pauses."""
ASKED_AT_ONCE = 500  # Devices asked per tick
NO_BLOB = "0" * 64
MAX_UNANSWERED = 2  # Deadlines in a row, without any message between them, after which a device is lost


def doubt_all(federation: Federation, now: float) -> Federation:
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
    commands: list[Command] = []
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
    lost = Note("lost", device.name, detail=why, kind=EventKind.LOSS)
    return replace(federation, fleet=federation.fleet.with_death(death, now)), [lost]


def question_device(federation: Federation, device: str) -> Command:
    """Request a blob that does not exist; a device that is there refuses at once and names the digest."""
    newcomers = federation.fleet.newcomers
    digest = NO_BLOB if newcomers is None else newcomers.question(device)
    return Send(
        device, BlobRequest(federation=federation.name, device=device, digest=digest, first=0, count=1)
    )
