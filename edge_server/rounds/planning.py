"""Before training: wait for devices, request a plan, offer its tasks."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import islice

from edge_server.rounds import agreed_lists, events, fleet, quarantine
from edge_server.rounds import participant as part
from edge_server.rounds.broadcast import handlers
from edge_server.rounds.events import Assignment, Command, ExcludedDevice, PlanRound
from edge_server.rounds.participant import AT_WORK, Participant, Status
from edge_server.rounds.state import Federation, Phase, Step, announce, end, with_participant
from edge_server.strategy.explanations import MAX_DEVICES
from schemas.errors import ConfigError, Reason
from schemas.values import Eligibility

# Before the first planning: agree on columns and classes, and exclude devices whose data does not fit.

MAX_KEPT = 1000
"""With more known devices, misfits are not recorded in the journal: their names may be made up."""


def agree_on_data(federation: Federation) -> Step:
    """Agree on the columns of the available devices before the first planning, and on classes that are open.

    A device with other columns has no say in the classes. The run fails if there can be no list of them.
    """
    commands: list[events.Command] = []
    for agree in (_agree_columns, _agree_classes):
        agreed, notes = agree(federation)
        commands += notes
        if agreed.phase is Phase.ENDED:
            return agreed, commands
        if agreed is not federation:
            for name, device in agreed.fleet.devices.items():
                agreed, misfits = check_data(agreed, name, before=device)
                commands += misfits
        federation = agreed
    return federation, commands


def _agree_columns(federation: Federation) -> Step:
    """Columns are agreed on once: a run that goes on keeps what its model was trained with."""
    known = federation.columns
    if federation.attempt:
        return federation, []
    cards = {device.name: device.data for device in quarantine.trusted_devices(federation)}
    columns = agreed_lists.common_columns(cards, known)
    words = agreed_lists.column_remarks(cards, known, columns)
    commands: list[events.Command] = [events.Note("columns:", detail=words)] if words else []
    if columns == known.columns:
        return federation, commands
    return replace(federation, columns=replace(known, columns=columns)), commands


def _agree_classes(federation: Federation) -> Step:
    if not federation.classes.is_open:
        return federation, []
    cards = {device.name: device.data for device in quarantine.trusted_devices(federation)}
    try:
        classes = replace(federation.classes, names=agreed_lists.common_classes(cards, federation.classes))
    except ConfigError as error:
        return end(federation, "failed", str(error))
    words = agreed_lists.remarks(cards, classes)
    commands: list[events.Command] = [events.Note("classes:", detail=words)] if words else []
    return replace(federation, classes=classes), commands


def check_data(federation: Federation, name: str, *, before: fleet.Device | None = None) -> Step:
    """Exclude a device whose birth shows that its data does not fit.

    It is logged once, and the device is informed in every session; `before` is the device as last known.
    """
    device = federation.fleet.devices[name]
    if device.outside:
        return federation, []
    why = agreed_lists.column_objection(device.data, federation.columns) or agreed_lists.class_objection(
        device.data, federation.classes
    )
    if not why:
        return federation, []
    commands: list[events.Command] = []
    if before is None or why != before.misfit:
        commands = _notes(federation, name, why)
    if commands or (before is not None and before.session != device.session):
        commands += [events.send_refusal(federation.name, name, Reason.INCOMPATIBLE, why, run=federation.run)]
    return mark_misfit(federation, name, why), commands


def relabel(federation: Federation, labels: fleet.OwnLabels) -> Step:
    """Take the operator's labels; devices that the run is for now are examined as new ones are."""
    before = federation.fleet
    membership = replace(before.membership, own_labels=labels)
    after = replace(federation, fleet=before.with_membership(membership))
    commands: list[events.Command] = []
    for name, device in before.devices.items():
        if device.outside and not after.fleet.devices[name].outside:
            after, notes = check_data(after, name)
            commands += notes
    return after, commands


def mark_misfit(federation: Federation, name: str, why: str) -> Federation:
    """The device is not planned until a birth describes other data."""
    return replace(federation, fleet=federation.fleet.with_misfit(name, why))


def _notes(federation: Federation, name: str, why: str) -> list[events.Command]:
    note = events.Note("is not chosen", name, Reason.INCOMPATIBLE, why)
    if len(federation.fleet.devices) > MAX_KEPT:
        return [note]
    return [note, events.RecordStrike(name, federation.round, Reason.INCOMPATIBLE)]


def wait_for_devices(federation: Federation, not_before: float) -> Step:
    waits = replace(federation, phase=Phase.WAITING, not_before=not_before)
    return waits, [announce(waits, "waiting")]


def is_ready(federation: Federation, now: float) -> bool:
    """Whether a waiting run may continue: it is time, enough devices are connected, and rounds open."""
    rules = federation.rules
    begun = federation.attempt > 0
    enough = rules.min_clients if begun else max(rules.start_clients, rules.min_clients)
    if now < federation.not_before or len(federation.fleet.devices) < enough or federation.fleet.settles(now):
        return False
    enough_able = len(federation.fleet.able()) >= enough
    return enough_able and rules.opening.demand(federation.round, federation.fleet).met


def request_plan(
    federation: Federation,
    devices: tuple[fleet.Device, ...],
    *,
    wanted: int | None = None,
    places: tuple[str, ...] = (),
) -> Step:
    """Request a plan of the round with some of `devices`: `wanted` of them if others are at work.

    `places` are the devices that they replace.
    """
    first = wanted is None or federation.plannings == 0
    attempt, plannings = federation.attempt + 1, federation.plannings + 1
    planning = replace(federation, phase=Phase.PLANNING, attempt=attempt, plannings=plannings)
    plan = PlanRound(
        federation.round,
        planning.attempt,
        devices,
        retry=federation.plannings,
        over_select=federation.rules.over_select,
        wanted=wanted,
        keep=_in_use(federation),
        places=places,
        left_out=excluded_devices(federation, devices) if first else (),
        known=len(federation.fleet.devices),
        classes=federation.classes.names,
        columns=federation.columns.columns,
    )
    return planning, [plan]


def _in_use(federation: Federation) -> frozenset[str]:
    """The blobs of open tasks, and of updates that are claimed or wait to be aggregated."""
    tasks = [part.assignment.task for part in federation.at_work]
    named = {ref.digest for task in tasks for ref in task.blobs.values()}
    claims = [part.update for part in federation.at_work if part.update is not None]
    updates = [*claims, *federation.updates.values()]
    return frozenset(named | {update.sent_blob.digest for update in updates if update.sent_blob is not None})


def offer_tasks(
    federation: Federation,
    assignments: Mapping[str, Assignment],
    now: float,
    *,
    deadline: float | None = None,
) -> Step:
    """Make the planned devices participants and offer each its task, due at `deadline` or in `deadline_s`."""
    commands: list[Command] = []
    deadline = now + federation.rules.deadline_s if deadline is None else deadline
    for device, assignment in assignments.items():
        participant = Participant(device, assignment, deadline=deadline, began=now)
        federation, offers = with_participant(federation, part.offer(participant, now))
        commands += offers
    offered = [federation.participants[device] for device in assignments]
    return handlers.start_broadcast(federation, offered, now), commands


def excluded_devices(federation: Federation, asked: Collection[fleet.Device]) -> tuple[ExcludedDevice, ...]:
    """All known devices that are not asked, sorted by name; at most the first `MOST_DEVICES` known."""
    if len(asked) >= len(federation.fleet.devices):
        return ()
    names = {device.name for device in asked}
    others = (device for device in federation.fleet.devices.values() if device.name not in names)
    first = sorted(islice(others, MAX_DEVICES), key=lambda device: device.name)
    return tuple(ExcludedDevice(device, _because(device, federation)) for device in first)


def _because(device: fleet.Device, federation: Federation) -> str:
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
    reputation = quarantine.quarantine_of(federation, device.name)
    if reputation is not None:
        return f"left out: quarantined until round {reputation.until} after {reputation.cause}"
    if device.eligibility is Eligibility.TRAIN:
        return "not asked"
    return f"left out: its owner's rules: {device.ineligible_because or device.eligibility}"


def _its_part(participant: Participant) -> str:
    number = participant.assignment.task.round
    reason = f": {participant.reason}" if participant.reason else ""
    if participant.status in AT_WORK:
        return f"still at work on round {number}"
    return {
        Status.COUNTED: f"its update of round {number} waits to be aggregated",
        Status.DECLINED: f"declined its task of round {number}{reason}",
        Status.REFUSED: f"its update of round {number} was refused{reason}",
    }.get(participant.status, f"missed its part in round {number}")
