"""Which dead boards' place a device took, for the views of its history in a run."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.config.load import load_config
from edge_server.observability.selection_history import SelectionRow, read_selection_history
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.records import InventoryDevice
from edge_server.storage.service_folder import ServiceFolder, default_service_folder
from schemas.errors import ConfigError
from schemas.labels import Where


@dataclass(frozen=True)
class Lineage:
    """The inventory's devices of a run's federation, removed ones included, by name."""

    devices: Mapping[str, InventoryDevice] = field(default_factory=dict)

    def predecessors(self, device: str) -> list[str]:
        """The boards before a device, the last one first."""
        found: list[str] = []
        while True:
            known = self.devices.get(found[-1] if found else device)
            if known is None or not known.replaces or known.replaces in (device, *found):
                return found
            found.append(known.replaces)

    def matches(self, device: str, where: Where) -> bool:
        """Whether a selector chooses the device; never one that the inventory does not know."""
        known = self.devices.get(device)
        return known is not None and where.matches(known.selectable)


def read_lineage(run: Path, service: Path | None) -> Lineage:
    """The lineage from the inventory of this service folder, or of the default one; empty without any."""
    folder = ServiceFolder(service or default_service_folder())
    if not folder.inventory.exists():
        return Lineage()
    federation = load_config(str(run / "federation.toml")).federation.name
    with closing(Inventory(folder.inventory)) as inventory:
        devices = inventory.devices(federation=federation, removed=True)
    return Lineage({device.device: device for device in devices})


def read_whole_history(run: Path, device: str, predecessors: Sequence[str]) -> list[tuple[str, SelectionRow]]:
    """The rounds of a device and of the boards before it, each with its name, in the order of the rounds.

    Raises `ConfigError` if the run knows none of them.
    """
    found: list[tuple[str, SelectionRow]] = []
    missing: list[ConfigError] = []
    names = (device, *predecessors)
    for name in names:
        try:
            found += [(name, row) for row in read_selection_history(run, name)]
        except ConfigError as error:
            missing.append(error)
    if len(missing) == len(names):
        raise missing[0]
    return sorted(found, key=lambda entry: (entry[1].round, entry[1].attempt or 0))
