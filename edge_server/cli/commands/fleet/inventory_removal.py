"""`edge-server inventory remove` and `replace`."""

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import Option
from edge_client.system.plain_text import print_result
from edge_server.cli.commands import enroll_options, revoke
from edge_server.cli.commands.fleet import inventory_options, serve
from schemas.errors import ConfigError, EdgeError, format_count

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority
    from edge_server.storage.inventory.records import InventoryDevice


REVOCATION = (
    Option("--yes", bool, "also several devices, and those that are connected"),
    enroll_options.AUTHORITY,
    *revoke.MOSQUITTO,
)


def remove_devices(args: argparse.Namespace) -> int:
    """Remove devices; their rows stay, with the time of the removal."""
    if (args.device is None) == (args.where is None):
        raise ConfigError("remove: name one DEVICE, or choose several with --where")
    with inventory_options.open_inventory(args) as service:
        devices = service.chosen(args, args.device)
        gone = [device.device for device in devices if device.removed_at is not None]
        if gone:
            raise ConfigError(f"{gone[0]} was removed from the inventory already")
        _check_is_meant(args, devices)
        served = {name: _of_federation(args, name) for name in {device.federation for device in devices}}
        lines, documents, problems = [], [], list[EdgeError]()
        for device in devices:
            own, authority = served[device.federation]
            certificates = _revoke_certificates(authority, device.device)
            service.inventory.remove(device.federation, device.device, time.time())
            _note_revocation(service, device, certificates)
            service.record(
                "remove", device, _describe_entry(device), {"certificates": 0 if authority else None}
            )
            lines += [
                f"{device.device}: removed from the inventory",
                *_after_revocation(own, authority, device, certificates, problems),
            ]
            documents.append({"device": device.device, "certificates": certificates})
    print_result(args, documents, *lines)
    _raise_first(problems)
    return 0


def _raise_first(problems: Sequence[EdgeError]) -> None:
    """Report that a broker could not be reached; what was changed stays."""
    if problems:
        raise EdgeError(f"certificates are revoked, and the broker does not know it yet: {problems[0]}")


def _check_is_meant(args: argparse.Namespace, devices: "Sequence[InventoryDevice]") -> None:
    alive = [device.device for device in devices if device.alive]
    if args.yes:
        return
    if args.where is not None:
        names = inventory_options.names_text([device.device for device in devices])
        raise ConfigError(
            f"--where chooses {format_count(len(devices), 'device')} ({names})", remedy="--yes removes them"
        )
    if alive:
        raise ConfigError(f"{alive[0]} is connected", remedy="--yes removes it in spite of that")


def _describe_entry(device: "InventoryDevice") -> dict[str, Any]:
    return {"labels": device.own_labels, "note": device.note, "certificate_until": device.certificate_until}


def _of_federation(
    args: argparse.Namespace, federation: str
) -> "tuple[argparse.Namespace, Authority | None]":
    """The options for a federation, and its authority."""
    own = serve.with_served(args, federation)
    return own, _authority_of(own, federation)


def _authority_of(args: argparse.Namespace, federation: str) -> "Authority | None":
    """The authority that `--authority`, or service.toml, names, or the usual one; None if there is none."""
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.settings import FILE, default_folder

    folder = args.authority or default_folder(federation)
    if args.authority is None and not (folder / FILE).exists():
        return None
    authority = open_authority(folder)
    if authority.settings.federation != federation:
        raise ConfigError(
            f"this authority is of federation '{authority.settings.federation}', not '{federation}'",
            place=folder,
        )
    return authority


def _revoke_certificates(authority: "Authority | None", device: str) -> int | None:
    from edge_server.security.identity.revocation import revoke_certificates

    return None if authority is None else revoke_certificates(authority, device)


def _note_revocation(
    service: inventory_options.Opened, device: "InventoryDevice", certificates: int | None
) -> None:
    if certificates:
        service.inventory.add(device.federation, device.device, revoked_at=time.time())


def _after_revocation(
    args: argparse.Namespace,
    authority: "Authority | None",
    device: "InventoryDevice",
    certificates: int | None,
    problems: list[EdgeError],
) -> list[str]:
    """What became of the certificates, in words; a broker that cannot be reached is one of the problems."""
    from edge_server.security.identity.revocation import Revocation

    if authority is None or certificates is None:
        return ["no certificate was revoked: --authority DIR names the federation's authority, if it has one"]
    if not certificates:
        return [f"{device.device}: it had no valid certificate"]
    try:
        return revoke.tell_mosquitto(args, authority, device.device, certificates).lines()
    except EdgeError as error:
        problems.append(error)
        return Revocation(authority, device.device, certificates).lines()


def replace(args: argparse.Namespace) -> int:
    """Give NEW the labels and the note of OLD, revoke OLD, and remember whose place NEW has taken."""
    from edge_server.security.identity.fleet_enrolment import check_device_name

    check_device_name(args.new)
    with inventory_options.open_inventory(args) as service:
        old = service.inventory.of_name(args.old, args.federation)
        if old.removed_at is not None:
            raise ConfigError(f"{args.old} was removed from the inventory already")
        if old.alive and not args.yes:
            raise ConfigError(f"{args.old} is connected", remedy="--yes replaces it in spite of that")
        if args.old == args.new:
            raise ConfigError(
                f"{args.old} cannot replace itself", remedy="name the old board and the new one"
            )
        new = service.inventory.device(old.federation, args.new)
        own, authority = _of_federation(args, old.federation)
        certificates = _revoke_certificates(authority, args.old)
        service.inventory.replace(old.federation, args.old, args.new, time.time())
        _note_revocation(service, old, certificates)
        after = {"replaced_by": args.new, "labels": old.own_labels, "note": old.note}
        service.record(
            "replace", old, {"old": _describe_entry(old), "new": _describe_entry(new) if new else None}, after
        )
        lines = [f"{args.new} takes the place of {args.old}, with its labels and its note"]
        problems: list[EdgeError] = []
        lines += _after_revocation(own, authority, old, certificates, problems)
    if authority is not None and not authority.certificates(args.new):
        words = f"edge-server enroll {args.new} --federation {old.federation} --out DIR"
        lines.append(f"{args.new} has no certificate yet: {words}")
    print_result(args, {"old": args.old, "new": args.new, "certificates": certificates}, *lines)
    _raise_first(problems)
    return 0
