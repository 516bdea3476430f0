"""What happens in a simulation, each at its moment of virtual time."""

from __future__ import annotations

from dataclasses import dataclass

from edge_server.rounds.events import Event
from schemas.messages import FromDevice, FromServer


@dataclass(frozen=True)
class ServerHears:
    """The server's machine hears of an event."""

    event: Event


@dataclass(frozen=True)
class ReachesServer:
    """A device's message arrives."""

    message: FromDevice
    size: int


@dataclass(frozen=True)
class ReachesDevice:
    """The server's message arrives, if the device is there."""

    device: str
    message: FromServer


@dataclass(frozen=True)
class ReachesAll:
    """An announcement arrives at every device that is there."""

    message: FromServer


@dataclass(frozen=True)
class Downloaded:
    """A device has a blob; `transit` is the number of the transfer that brought it."""

    device: str
    digest: str
    transit: int


@dataclass(frozen=True)
class Uploaded:
    """The server has a device's blob; `transit` is the number of the transfer that brought it."""

    device: str
    digest: str
    transit: int


@dataclass(frozen=True)
class WorkEnds:
    """A device has done its task of that attempt."""

    device: str
    attempt: int


@dataclass(frozen=True)
class LinkTurns:
    """A device's link goes up or down."""

    device: str


Happening = (
    ServerHears | ReachesServer | ReachesDevice | ReachesAll | Downloaded | Uploaded | WorkEnds | LinkTurns
)
