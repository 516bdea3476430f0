"""`edge-server enroll --from` enrols the devices of a fleet file, `--list` shows who is enrolled."""

import argparse
import sys
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edge_client.system.plain_text import print_json, print_rows, say
from edge_server.cli.commands.enroll_issue import enter_device, has_inventory, trusted_key, write_code
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.security.identity.authority import Authority
    from edge_server.storage.inventory.fleet_file import FleetRow
    from edge_server.storage.inventory.records import InventoryDevice


def read_rows(args: argparse.Namespace, folder: Path) -> "list[FleetRow]":
    """The rows of `--from`, checked as far as that is possible before there is an authority.

    Raises `ConfigError`; nothing has been changed then.
    """
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.fleet_enrolment import check_device_name, issued_already
    from edge_server.security.identity.settings import FILE
    from edge_server.storage.inventory.fleet_file import read_fleet_file
    from schemas.base import is_of_site

    if args.device is not None or args.gateway:
        raise ConfigError("the file names the devices", key="--from", remedy="leave DEVICE and --gateway out")
    if args.label or args.note is not None or args.data is not None:
        raise ConfigError(
            "the file has columns for labels, notes and data", key="--from", remedy="leave those options out"
        )
    rows = read_fleet_file(args.fleet)
    authority = open_authority(folder) if (folder / FILE).exists() else None
    federation = args.federation if authority is None else authority.settings.federation
    for row in rows:
        _check_row(args, row, federation)
    names = [(row.device, row.where) for row in rows]
    if authority is not None:
        issued_already(authority, names, args.out, code=args.code, renew=args.renew)
        return rows
    for row in rows:
        try:
            check_device_name(row.device)
        except ConfigError as error:
            raise row.error(str(error)) from None
        if args.within is not None and not is_of_site(row.device, args.within):
            raise row.error(
                f"'{row.device}': devices of the site '{args.within}' are called {args.within}.NAME"
            )
    return rows


def _check_row(args: argparse.Namespace, row: "FleetRow", federation: str) -> None:
    if row.federation not in ("", federation):
        raise row.error(
            f"'{row.device}' is of federation '{row.federation}', and the authority of '{federation}': give "
            "each federation a file of its own"
        )
    if row.removed_at is not None:
        raise row.error(f"'{row.device}' was removed from the inventory: leave out its row")
    if args.code and row.data is not None:
        raise row.error("a code carries no `data`: edge-client enroll --data SOURCE writes it on the board")


@dataclass(frozen=True)
class Issued:
    """A device's archive or code; `kept` if it was there before."""

    device: str
    path: Path
    kept: bool


def enrol_fleet(args: argparse.Namespace, authority: "Authority", rows: "list[FleetRow]") -> int:
    """Issue what is missing, one device after the other; the same command continues after an interruption."""
    from edge_server.security.identity.fleet_enrolment import issue_marked, issued_already
    from edge_server.storage.inventory.enrolments import enrolment_entries

    names = [(row.device, row.where) for row in rows]
    kept = issued_already(authority, names, args.out, code=args.code, renew=args.renew)
    trust, give = trusted_key(args), _give_code if args.code else _give_archive
    done: list[Issued] = []
    with enrolment_entries(args.service, authority.settings.federation) as entries:
        for number, row in enumerate(rows, start=1):
            path = args.out / f"{row.device}.{'code' if args.code else 'tar'}"
            if row.device not in kept:
                issue_marked(authority, row.device, partial(give, args, authority, row, trust))
            if entries is not None and not (row.device in kept and entries.has(row.device)):
                enter_device(entries, authority, row.device, row.labels, row.note)
            done.append(Issued(row.device, path, row.device in kept))
            what = "was there before" if row.device in kept else "written"
            _say(args, f"{number} of {len(rows)}: {path} {what}")
    _report(args, authority, done)
    if not has_inventory(args) and any(row.note or (args.code and row.labels) for row in rows):
        say(
            "edge-server: there is no service folder, so that notes, and labels of codes, are kept nowhere: "
            f"edge-server inventory import {args.fleet} --service DIR takes them later",
            file=sys.stderr,
        )
    return 0


def _give_archive(args: argparse.Namespace, authority: "Authority", row: "FleetRow", trust: str) -> None:
    from edge_server.security.identity.bundle import write_bundle

    labels = row.labels_after({})
    write_bundle(authority, row.device, args.out, trust=trust, wheel=args.wheel, data=row.data, labels=labels)


def _give_code(args: argparse.Namespace, authority: "Authority", row: "FleetRow", trust: str) -> None:
    from edge_server.security.identity.enrolment_codes import withdraw_codes

    withdraw_codes(authority, row.device)
    write_code(args, authority, row.device, trust)


def _report(args: argparse.Namespace, authority: "Authority", done: list[Issued]) -> None:
    if args.format == "json":
        key = "file" if args.code else "archive"
        devices = [{"device": row.device, key: str(row.path), "kept": row.kept} for row in done]
        broker = authority.settings.broker
        print_json({"authority": str(authority.folder), "broker": broker, "devices": devices})
        return
    from edge_server.config.units import counted_text

    kept = sum(row.kept for row in done)
    was = f", {kept} were there before" if kept else ""
    things = "codes" if args.code else "archives"
    say(f"{counted_text(len(done), 'device')}: {len(done) - kept} {things} written to {args.out}{was}")
    if args.code:
        serve = f"edge-server enroll --serve{authority.option}"
        say(f"each is good once, for {args.hours:g} h; they are answered by: {serve}")
    else:
        say("bring each to its board over a channel that you trust, there run its install.sh, and delete it")
        say("here: it holds the board's private key")


def _say(args: argparse.Namespace, line: str) -> None:
    say(line, file=sys.stderr if args.format == "json" else sys.stdout, flush=True)


def list_enrolled(args: argparse.Namespace, folder: Path) -> int:
    """Print every device that was enrolled or invited, until when, and when the inventory saw it."""
    from edge_client.security.identity.validity import format_utc
    from edge_server.security.identity.authority import open_authority
    from edge_server.security.identity.fleet_enrolment import enrolments

    authority = open_authority(folder)
    known = _known_devices(args.service, authority.settings.federation)
    rows = []
    for enrolment in enrolments(authority):
        device = known.get(enrolment.device)
        rows.append((enrolment, device.seen_at if device else None, device.labels if device else {}))
    document = [
        {**enrolment.model_dump(mode="json"), "seen_at": seen, "labels": labels}
        for enrolment, seen, labels in rows
    ]
    lines = [
        (
            enrolment.device,
            f"{enrolment.state}{', gateway' if enrolment.gateway else ''}",
            "-" if enrolment.until is None else format_utc(enrolment.until),
            "-" if seen is None else format_utc(seen),
            ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or "-",
        )
        for enrolment, seen, labels in rows
    ]
    return print_rows(args, document, ("device", "state", "until", "last seen", "labels"), lines)


def _known_devices(path: Path | None, federation: str) -> "dict[str, InventoryDevice]":
    from edge_server.storage.inventory.inventory import Inventory
    from edge_server.storage.service_folder import ServiceFolder, default_service_folder

    folder = ServiceFolder(path or default_service_folder())
    if not folder.inventory.exists():
        return {}
    with closing(Inventory(folder.inventory)) as inventory:
        devices = inventory.devices(federation=federation, removed=True)
    return {device.device: device for device in devices}
