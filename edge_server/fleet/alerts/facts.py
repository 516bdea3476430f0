"""What rules see: devices, and what happened to devices, rounds and jobs. Pure values."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from edge_server.fleet.settings.alert_kinds import Incident, IncidentKind, Subject
from edge_server.storage.inventory.records import InventoryDevice


@dataclass(frozen=True)
class Facts:
    """Everything at one moment. In the `unheard` federations nobody knows which devices are silent."""

    subjects: tuple[Subject, ...] = ()
    unheard: frozenset[str] = frozenset()


def gather(
    devices: Iterable[InventoryDevice],
    incidents: Iterable[Incident],
    *,
    unheard: frozenset[str] = frozenset(),
) -> Facts:
    """The facts by subject; revoked devices, and incidents of unknown ones, are left out."""
    of_devices: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    others: dict[tuple[str, str, str], list[Incident]] = defaultdict(list)
    for incident in incidents:
        if incident.kind in (IncidentKind.REFUSAL, IncidentKind.TRIAL):
            of_devices[incident.federation, incident.subject].append(incident)
        else:
            kind = "run" if incident.kind is IncidentKind.ROUND else "job"
            others[kind, incident.federation, incident.subject].append(incident)
    boards = tuple(_of_device(device, of_devices) for device in devices if device.revoked_at is None)
    rest = tuple(
        Subject(kind, federation, name, {"federation": federation, kind: name}, incidents=tuple(found))
        for (kind, federation, name), found in others.items()
    )
    return Facts((*boards, *rest), unheard)


def _of_device(device: InventoryDevice, found: Mapping[tuple[str, str], list[Incident]]) -> Subject:
    incidents = tuple(found.get((device.federation, device.device), ()))
    return Subject("device", device.federation, device.device, device.selectable, device, incidents)
