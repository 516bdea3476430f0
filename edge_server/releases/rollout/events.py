"""Events of the rollout machine, and the commands that it returns."""

from dataclasses import dataclass

from edge_server.releases.rollout.target import Report
from schemas.messages import Birth, BlobRequest, Death, Message
from schemas.tensors.chunks import BlobRef


@dataclass(frozen=True)
class Connected:
    """Event: connected to the broker; chunks have `chunk_bytes`."""

    chunk_bytes: int


@dataclass(frozen=True)
class MessageReceived:
    """Event: a message of a device; its topic has proved the sender."""

    message: Birth | Death | Report | BlobRequest


@dataclass(frozen=True)
class Withdrawn:
    """Event: the user withdraws the version."""

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
