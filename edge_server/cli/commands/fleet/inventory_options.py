"""What the verbs of `edge-server inventory` share."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge_client.cli.options import Option
from edge_server.cli.commands.fleet.serve import service_folder
from schemas.errors import ConfigError

if TYPE_CHECKING:
    from edge_server.storage.inventory.inventory import Inventory
    from edge_server.storage.inventory.records import Change, InventoryDevice
    from edge_server.storage.service_folder import ServiceFolder

MAX_NAMES = 20  # Names of devices in one line of output


def where_option(what: str) -> Option:
    text = f"{what}: site=barn, role!=camera, 'site in (barn,field)', gpu, !gpu"
    return Option("--where", help=text, metavar="SELECTOR")


@dataclass(frozen=True)
class Opened:
    """An open inventory, and where its changes are recorded."""

    folder: "ServiceFolder"
    inventory: "Inventory"

    def record(self, what: str, device: "InventoryDevice | Change", before: Any, after: Any) -> None:
        """Append a change of a device to the audit log."""
        from edge_server.storage import audit_log

        audit_log.append_entry(
            self.folder.audit,
            who=audit_log.local_user(),
            what=what,
            target=f"{device.federation}/{device.device}",
            before=before,
            after=after,
        )

    def chosen(self, args: argparse.Namespace, device: str | None) -> "list[InventoryDevice]":
        """The devices of `--where`, or the named one; raises `ConfigError` if there is none."""
        from schemas.selectors import parse_where

        if device is not None:
            return [self.inventory.of_name(device, args.federation)]
        devices = self.inventory.devices(parse_where(args.where), federation=args.federation)
        if not devices:
            raise ConfigError(
                "no device matches", key=f"--where '{args.where}'", remedy="`edge-server devices` lists all"
            )
        return devices


@contextmanager
def open_inventory(args: argparse.Namespace) -> Iterator[Opened]:
    """The inventory of the service folder; raises `ConfigError` if there is no such folder."""
    from edge_server.storage.inventory.inventory import Inventory

    folder = service_folder(args)
    with closing(Inventory(folder.inventory)) as inventory:
        yield Opened(folder, inventory)


def names_text(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return ", ".join(names[:MAX_NAMES]) + more
