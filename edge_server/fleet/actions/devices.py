"""Actions on devices: labels, notes, revocation."""

from contextlib import closing
from pathlib import Path

from edge_server.fleet.actions.action import Args, Change, Desk
from edge_server.fleet.people.values import Actor, NotAllowed
from edge_server.fleet.settings.service import ServedFederation
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.records import InventoryDevice
from schemas.errors import ConfigError, EdgeError
from schemas.messages.remote import Diagnostic
from schemas.selectors import checked_key, parse_label, parse_where


def set_labels(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    changes = parse_changes(args["labels"])
    with closing(Inventory(desk.folder.inventory)) as inventory:
        device = _within_scope(inventory, args, actor)
        before, after = inventory.set_labels(device.federation, device.device, changes)
    labels = ", ".join(f"{key}={value}" for key, value in after.items()) or "of its own only"
    said = f"{device.device} has the labels {labels}"
    return Change(_full_name(device), {"labels": before}, {"labels": after}, said)


def set_note(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    with closing(Inventory(desk.folder.inventory)) as inventory:
        device = _within_scope(inventory, args, actor)
        before = inventory.set_note(device.federation, device.device, args["note"])
    return Change(
        _full_name(device), {"note": before}, {"note": args["note"]}, f"the note of {device.device} is stored"
    )


def doctor(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    return _ask(desk, args, actor, now, Diagnostic.DOCTOR)


def logs(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    return _ask(desk, args, actor, now, Diagnostic.LOGS)


def _ask(desk: Desk, args: Args, actor: Actor, now: float, what: Diagnostic) -> Change:
    with closing(Inventory(desk.folder.inventory)) as inventory:
        device = _within_scope(inventory, args, actor)
    if desk.diagnostics is None:
        raise ConfigError("no service runs here", remedy=f"edge-server {what} {device.device}")
    desk.diagnostics.ask(device.federation, device.device, what, who=actor.who, now=now)
    return Change(
        _full_name(device), said=f"{device.device} is asked: its page shows the answer", recorded=True
    )


def revoke(desk: Desk, args: Args, actor: Actor, now: float) -> Change:
    """Revoke a device's certificates, and end its connection where the broker is at hand."""
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.revocation import (
        check_is_known,
        notify_broker,
        read_pid,
        revoke_certificates,
    )

    with closing(Inventory(desk.folder.inventory)) as inventory:
        device = _within_scope(inventory, args, actor)
        served = desk.settings.federation(device.federation)
        authority = open_authority(_authority_folder(served))
        pid = read_pid(served.mosquitto_pid_file) if served.mosquitto_pid_file else None
        check_is_known(authority, device.device)
        count = revoke_certificates(authority, device.device)
        inventory.add(device.federation, device.device, revoked_at=now)
    try:
        said = " ".join(notify_broker(authority, device.device, count, pid=pid).lines()[:2])
    except EdgeError as error:
        # The certificates are revoked all the same, which the audit log must say.
        said = f"{device.device}: {count} revoked, but {error}"
    return Change(_full_name(device), {"certificates": count}, {"certificates": 0}, said)


def _authority_folder(served: ServedFederation) -> Path:
    if served.authority is None:
        raise ConfigError(
            f"service.toml names no authority of the federation '{served.name}'",
            remedy="revoke the device with `edge-server revoke` where the authority is",
        )
    return served.authority


def parse_changes(text: str) -> dict[str, str | None]:
    """`site=barn role-` as changes: a label to set, one to remove. Raises `ConfigError`."""
    changes: dict[str, str | None] = {}
    for word in text.replace(",", " ").split():
        removes = word.endswith("-") and "=" not in word
        key, value = (checked_key(word[:-1]), None) if removes else parse_label(word)
        changes[key] = value
    if not changes:
        raise ConfigError("name at least one label", remedy="site=barn sets it, site- removes it")
    return changes


def _within_scope(inventory: Inventory, args: Args, actor: Actor) -> InventoryDevice:
    """The device; one that a token's selector does not choose looks like none to the token."""
    device = inventory.device(args["federation"], args["device"])
    if device is None:
        raise ConfigError(f"there is no device '{args['device']}' in the federation '{args['federation']}'")
    if not parse_where(actor.where).matches(device.selectable):
        raise NotAllowed(f"this token is for the devices where {actor.where}, and '{device.device}' is none")
    return device


def _full_name(device: InventoryDevice) -> str:
    return f"{device.federation}/{device.device}"
