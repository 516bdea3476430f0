"""Before the first planning: agree on columns and classes, and exclude devices whose data does not fit."""

from dataclasses import replace

from edge_server.rounds import agreed_lists, events, fleet, quarantine
from edge_server.rounds.state import Federation, Phase, Step, end
from schemas.errors import ConfigError
from schemas.values import Reason

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
