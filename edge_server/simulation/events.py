"""The events of a simulation's timeline."""

import heapq
import math
from dataclasses import dataclass
from typing import Generic, TypeVar

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
    device: str


@dataclass(frozen=True)
class DataArrived:
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

Item = TypeVar("Item")


class Timeline(Generic[Item]):
    """Events ordered by their time in seconds; events of one time keep the order of posting."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self._count = 0
        self._queue: list[tuple[float, int, Item]] = []

    def __len__(self) -> int:
        return len(self._queue)

    def post(self, at: float, item: Item) -> None:
        """Add an event at time `at`, or now if that is in the past; what comes at infinity never comes."""
        if math.isfinite(at):
            self._count += 1
            heapq.heappush(self._queue, (max(at, self.now), self._count, item))

    def next(self) -> Item:
        """Advance to the next event and return it; `IndexError` if there is none."""
        self.now, _, item = heapq.heappop(self._queue)
        return item

    @property
    def next_at(self) -> float:
        """The time of the next event; infinity if there is none."""
        return self._queue[0][0] if self._queue else math.inf

    def clear(self) -> None:
        """Remove all events; the time stays."""
        self._queue.clear()
