"""The events that a connection to the broker puts into its owner's inbox."""

import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LinkUp:
    """Connected. `session` counts this client's connections; `max_packet` is the broker's limit in bytes."""

    session: int
    max_packet: int | None


@dataclass(frozen=True)
class LinkDown:
    """The connection ended, was refused, or could not be made; paho tries again.

    `downgrade`: MQTT 3.1.1 is tried next. `lasting`: no further try can succeed. `taken_over`: another client
    uses the same name, or so it seems. `silent`: the broker has never answered.
    """

    reason: str
    downgrade: bool = False
    lasting: bool = False
    taken_over: bool = False
    silent: bool = False


@dataclass(frozen=True)
class Arrived:
    """A message arrived."""

    topic: str
    payload: bytes
    retained: bool = False


@dataclass(frozen=True)
class Confirmed:
    """The broker has acknowledged message `mid`."""

    mid: int


@dataclass(frozen=True)
class NotGranted:
    code: int
    reason: str


@dataclass(frozen=True)
class Subscribed:
    """The broker has answered a subscription; what it retains for it follows."""


LinkEvent = LinkUp | LinkDown | Arrived | Confirmed | NotGranted | Subscribed
Inbox = queue.SimpleQueue[Any]


class TaggedInbox:
    """The inbox of one link among several: its events go, tagged, into that of their owner."""

    def __init__(self, inbox: Inbox, tag: Callable[[LinkEvent], Any]) -> None:
        self._inbox, self._tag = inbox, tag

    def put(self, event: LinkEvent) -> None:
        self._inbox.put(self._tag(event))

    def qsize(self) -> int:
        return self._inbox.qsize()
