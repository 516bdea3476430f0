"""What may happen to a rollout (events) and what it wants done (commands)."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.messages import Birth, BlobRequest, Death, Message, ModelReport
from schemas.tensors.chunks import BlobRef


@dataclass(frozen=True)
class Connected:
    """Event: the link to the broker is up; chunks may have `chunk_bytes`."""

    chunk_bytes: int


@dataclass(frozen=True)
class MessageReceived:
    """Event: a message of a device; its topic has already proved who sent it."""

    message: Birth | Death | ModelReport | BlobRequest


@dataclass(frozen=True)
class Withdrawn:
    """Event: the user takes the version back."""

    why: str


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


Event = Connected | MessageReceived | Withdrawn | Tick


@dataclass(frozen=True)
class SendMessage:
    """Command: publish a message to a device."""

    device: str
    message: Message


@dataclass(frozen=True)
class SendChunks:
    """Command: send a device chunks of a file of the registry."""

    device: str
    ref: BlobRef
    first: int
    count: int


Command = SendMessage | SendChunks
