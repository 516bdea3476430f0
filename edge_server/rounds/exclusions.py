"""Which devices a planning excludes, and why, in words."""

from collections.abc import Collection
from itertools import islice

from edge_server.rounds.events import ExcludedDevice
from edge_server.rounds.fleet import Device
from edge_server.rounds.participant import AT_WORK, Participant, Status
from edge_server.rounds.quarantine import quarantine_of
from edge_server.rounds.state import Federation
from edge_server.strategy.explanations import MOST_DEVICES
from schemas.values import Eligibility


def excluded_devices(federation: Federation, asked: Collection[Device]) -> tuple[ExcludedDevice, ...]:
    """All known devices that are not asked, sorted by name; at most the first `MOST_DEVICES` known."""
    if len(asked) >= len(federation.fleet.devices):
        return ()
    names = {device.name for device in asked}
    others = (device for device in federation.fleet.devices.values() if device.name not in names)
    first = sorted(islice(others, MOST_DEVICES), key=lambda device: device.name)
    return tuple(ExcludedDevice(device, _because(device, federation)) for device in first)


def _because(device: Device, federation: Federation) -> str:
    participant = federation.participants.get(device.name)
    if participant is not None:
        return _its_part(participant)
    if not device.alive:
        return "offline"
    if device.doubted is not None:
        return "online according to the broker, but it has not answered yet"
    if device.outside:
        return f"left out: its labels do not match {federation.fleet.membership}"
    if device.misfit:
        return f"left out: {device.misfit}"
    reputation = quarantine_of(federation, device.name)
    if reputation is not None:
        return f"left out: quarantined until round {reputation.until} after {reputation.cause}"
    if device.eligibility is Eligibility.TRAIN:
        return "not asked"
    return f"left out: its owner's rules: {device.ineligible_because or device.eligibility}"


def _its_part(participant: Participant) -> str:
    """The device's part since the last aggregation; it rests until the next."""
    number = participant.assignment.task.round
    reason = f": {participant.reason}" if participant.reason else ""
    if participant.status in AT_WORK:
        return f"still at work on round {number}"
    return {
        Status.COUNTED: f"its update of round {number} waits to be aggregated",
        Status.DECLINED: f"declined its task of round {number}{reason}",
        Status.REFUSED: f"its update of round {number} was refused{reason}",
    }.get(participant.status, f"missed its part in round {number}")
