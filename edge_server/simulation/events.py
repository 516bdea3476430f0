"""The events of a simulation's timeline."""

from dataclasses import dataclass

from edge_server.rounds.events import Event
from schemas.messages import FromDevice, FromServer


@dataclass(frozen=True)
class ServerEvent:
    """An event for the server's state machine."""

    event: Event


@dataclass(frozen=True)
class MessageToServer:
    """A device's message arrives at the server; `size` in bytes."""

    message: FromDevice
    size: int


@dataclass(frozen=True)
class MessageToDevice:
    """A message of the server arrives at a device, if that is online."""

    device: str
    message: FromServer


@dataclass(frozen=True)
class AnnouncementToAll:
    """An announcement arrives at every device that is online."""

    message: FromServer


@dataclass(frozen=True)
class Downloaded:
    """A transfer to a device is complete; `transit` is its number."""

    device: str
    digest: str
    transit: int


@dataclass(frozen=True)
class Uploaded:
    """A transfer from a device is complete; `transit` is its number."""

    device: str
    digest: str
    transit: int


@dataclass(frozen=True)
class WorkEnded:
    """A device has finished its task of that attempt."""

    device: str
    attempt: int


@dataclass(frozen=True)
class LinkChanged:
    """A device goes online or offline."""

    device: str


@dataclass(frozen=True)
class DataArrived:
    """A device gets examples."""

    device: str


TimelineEvent = (
    ServerEvent
    | MessageToServer
    | MessageToDevice
    | AnnouncementToAll
    | Downloaded
    | Uploaded
    | WorkEnded
    | LinkChanged
    | DataArrived
)
