"""What rules see: devices, and what happened to devices, rounds and jobs. Pure values."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from edge_server.storage.inventory.records import InventoryDevice


class IncidentKind(StrEnum):
    """What an incident concerns."""

    REFUSAL = "refusal"
    ROUND = "round"
    JOB = "job"
    TRIAL = "trial"


@dataclass(frozen=True)
class Incident:
    """Something that happened `count` times, the last time `at`; `run` is its run folder.

    The subject is a device of a refusal or trial, else a run or job. `lost` is by how much a trial's model
    was worse than the one before, if both were measured.
    """

    at: float
    kind: IncidentKind
    federation: str
    subject: str
    text: str = ""
    count: int = 1
    run: str = ""
    lost: float | None = None


@dataclass(frozen=True)
class Subject:
    """What one alert may be about: a device with its state, or a run or job."""

    kind: str
    federation: str
    name: str
    labels: Mapping[str, str]
    device: InventoryDevice | None = None
    incidents: tuple[Incident, ...] = ()

    def recent(self, kind: IncidentKind, since: float) -> list[Incident]:
        """The incidents of a kind after `since`, the newest last."""
        found = [incident for incident in self.incidents if incident.kind is kind and incident.at > since]
        return sorted(found, key=lambda incident: incident.at)


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
