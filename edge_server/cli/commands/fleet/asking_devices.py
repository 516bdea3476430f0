"""What the verbs that ask devices have in common: options, the connection, the audit log, texts."""

import argparse
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import Option, seconds_option, tls_options
from edge_server.cli.commands.fleet.serve import SERVICE
from edge_server.fleet.diagnostics.answers import why_none
from schemas.errors import nearest

if TYPE_CHECKING:
    from edge_client.transport.broker_link import BrokerAddress
    from edge_server.fleet.diagnostics.inquiry import Inquired, Terms
    from edge_server.storage.service_folder import ServiceFolder

BROKER = "mqtt://127.0.0.1:1883"
ANSWERS = """\
A device answers if its owner lets it (`remote-diagnostics` in its client.toml) and not too often. What leaves
a device is masked of its data, keys and passwords. Each request is a line of the service's audit log, and of
the device's own log.

On a broker with certificates this command uses its own, edge-operator (AUTHORITY/operator, from `edge-server
enroll`). A device behind the gateway of a site is asked through it.
"""


ASKING = (
    SERVICE,
    Option("--federation", help="federation, if the service has several", metavar="NAME"),
    Option(
        "--broker",
        help=f"the devices' broker (default: of the service's folder; without a folder {BROKER})",
        metavar="URL",
    ),
    *tls_options("the operator's"),
    seconds_option(
        "--timeout", "give up devices that have not answered after this time (default: %(default)g s)", 300.0
    ),
)
"""The options of the connection."""


def age(text: str) -> float:
    """Parse an age such as `90s`, `30m`, `1h` or `2d`, in seconds."""
    from edge_server.config.measures import SECONDS, quantity
    from schemas.errors import MAX_SECONDS, ConfigError

    try:
        seconds = quantity(text, {"": 1.0, **SECONDS}, "an age")
    except ConfigError:
        seconds = 0.0
    if not 0 < seconds <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"'{text}' is not an age: write 90s, 30m, 1h or 2d")
    return seconds


def ask(
    args: argparse.Namespace, terms: "Terms", names: Sequence[str], where: str | None = None
) -> "dict[str, Inquired]":
    """Ask the named devices, and the connected ones that the selector chooses."""
    from edge_server.fleet.diagnostics.operator import OperatorConnection, Selection
    from schemas.selectors import parse_where

    folder = _folder(args)
    federation, address = _broker(args, folder)
    selection = Selection(
        tuple(names), None if where is None else parse_where(where), _own_labels(folder, federation)
    )

    def begun(devices: tuple[str, ...]) -> None:
        from edge_server.fleet.diagnostics.remote_part import record_request
        from edge_server.storage.audit_log import local_user

        if folder is not None and devices:
            record_request(folder.audit, local_user(), federation, devices, terms)

    found = OperatorConnection(
        address, federation, selection, terms, patience_s=args.timeout, begun=begun
    ).run()
    return found if folder is None else _with_unknown_named(found, folder, federation)


def _with_unknown_named(
    found: "dict[str, Inquired]", folder: "ServiceFolder", federation: str
) -> "dict[str, Inquired]":
    """Silent devices that the inventory does not have may be mistyped names: their details say so."""
    from edge_server.fleet.diagnostics.inquiry import Status
    from edge_server.storage.inventory.inventory import Inventory

    if not folder.inventory.exists() or all(device.status is not Status.SILENT for device in found.values()):
        return found
    with closing(Inventory(folder.inventory)) as inventory:
        names = {device.device for device in inventory.devices(federation=federation)}
    hints = {name: f"; the inventory has no '{name}'{nearest(name, names)}" for name in found.keys() - names}
    return {
        name: replace(device, detail=device.detail + hints[name])
        if device.status is Status.SILENT and name in hints
        else device
        for name, device in found.items()
    }


def _folder(args: argparse.Namespace) -> "ServiceFolder | None":
    """The service's folder; None if the user names none and there is none at the usual place."""
    from edge_server.storage.service_folder import ServiceFolder, default_service_folder, open_service_folder

    if args.service is None and not default_service_folder().is_dir():
        return None
    return open_service_folder(args.service) if args.service else ServiceFolder(default_service_folder())


def _broker(args: argparse.Namespace, folder: "ServiceFolder | None") -> "tuple[str, BrokerAddress]":
    from edge_client.transport.broker_link import TlsFiles, parse_address
    from edge_server.fleet.settings.service import load_service_settings

    settings = None if folder is None else load_service_settings(folder.settings)
    if args.broker is None and settings is not None and settings.federations:
        served = settings.federation(args.federation)
        return served.name, served.address("operator")
    files = TlsFiles(args.ca, args.cert, args.key)
    return args.federation or "federation", parse_address(args.broker or BROKER, files)


def _own_labels(folder: "ServiceFolder | None", federation: str) -> dict[str, dict[str, str]]:
    from edge_server.storage.inventory.inventory import Inventory

    if folder is None or not folder.inventory.exists():
        return {}
    with closing(Inventory(folder.inventory)) as inventory:
        return inventory.labels(federation)


def as_document(device: "Inquired") -> dict[str, Any]:
    """What came of one device, for programs."""
    return {
        "device": device.device,
        "status": str(device.status),
        "detail": device.detail,
        "again_s": device.again_s,
        "answer": device.document,
    }


def answer_of(args: argparse.Namespace, terms: "Terms") -> Mapping[str, Any]:
    """The answer of the one device of `args`; raises `EdgeError` if there is none."""
    from schemas.errors import EdgeError

    device = ask(args, terms, (args.device,))[args.device]
    if device.document is None:
        raise EdgeError(f"{args.device}: {device.status}: {why_none(device)}")
    return device.document


def write_whole(path: Path, data: bytes) -> None:
    """Write a new file that only this user may read."""
    import os

    from schemas.errors import ConfigError

    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(
            "there is a file of that name", place=path, remedy="name another with --out"
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
