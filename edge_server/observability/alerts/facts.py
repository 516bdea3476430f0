"""What rules see: devices, and what happened to devices, rounds and jobs. Pure values."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from schemas.labels import selectable
from schemas.values import BoardState


class DeviceFacts(Protocol):
    """A device of the inventory, as far as rules need it; times are seconds since 1970."""

    @property
    def name(self) -> str: ...
    @property
    def federation(self) -> str: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def site(self) -> str: ...
    @property
    def note(self) -> str: ...
    @property
    def alive(self) -> bool: ...
    @property
    def seen_at(self) -> float | None: ...
    @property
    def certificate_until(self) -> float | None: ...
    @property
    def board(self) -> BoardState | None: ...
    @property
    def drift(self) -> str: ...


class Happening(StrEnum):
    """What an incident is."""

    REFUSAL = "refusal"
    ROUND = "round"
    JOB = "job"
    TRIAL = "trial"


@dataclass(frozen=True)
class Incident:
    """Something that happened `count` times, the last time `at`; `run` is its run folder's name.

    The subject is a device of a refusal or trial, else a run or job. `lost` is by how much a trial's model
    was worse than the one before, if both were measured.
    """

    at: float
    kind: Happening
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
    device: DeviceFacts | None = None
    incidents: tuple[Incident, ...] = ()

    def recent(self, kind: Happening, since: float) -> list[Incident]:
        """The incidents of a kind after `since`, the newest last."""
        found = [incident for incident in self.incidents if incident.kind is kind and incident.at > since]
        return sorted(found, key=lambda incident: incident.at)


@dataclass(frozen=True)
class Facts:
    """Everything at one moment. Without `presence` nobody knows which devices are silent."""

    subjects: tuple[Subject, ...] = ()
    presence: bool = True


def gather(devices: Iterable[DeviceFacts], incidents: Iterable[Incident], *, presence: bool = True) -> Facts:
    """The facts by subject; incidents of devices that the inventory does not have are left out."""
    of_devices: dict[tuple[str, str], list[Incident]] = defaultdict(list)
    others: dict[tuple[str, str, str], list[Incident]] = defaultdict(list)
    for incident in incidents:
        if incident.kind in (Happening.REFUSAL, Happening.TRIAL):
            of_devices[incident.federation, incident.subject].append(incident)
        else:
            kind = "run" if incident.kind is Happening.ROUND else "job"
            others[kind, incident.federation, incident.subject].append(incident)
    boards = tuple(_of_device(device, of_devices) for device in devices)
    rest = tuple(
        Subject(kind, federation, name, {"federation": federation}, incidents=tuple(found))
        for (kind, federation, name), found in others.items()
    )
    return Facts((*boards, *rest), presence)


def _of_device(device: DeviceFacts, found: Mapping[tuple[str, str], list[Incident]]) -> Subject:
    seen = selectable(device.labels, device=device.name, federation=device.federation, site=device.site)
    incidents = tuple(found.get((device.federation, device.name), ()))
    return Subject("device", device.federation, device.name, seen, device, incidents)
