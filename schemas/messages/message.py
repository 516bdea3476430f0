"""The base of all messages, and their size limits."""

from typing import Annotated, ClassVar

from pydantic import Field

from schemas.base import Frozen, Name
from schemas.values import Attempt, Epoch, RoundNumber

PROTOCOL = 1  # version of the protocol that this program writes
PROTOCOL_RANGE = (1, 1)
MAX_MESSAGE_BYTES = 256 * 1024  # of the largest kinds, which may list channels one by one; usually 4 kB


class Message(Frozen):
    """Base of all messages."""

    kind: str
    protocol: int = PROTOCOL
    federation: Name
    max_bytes: ClassVar[int] = 4 * 1024


class TaskMessage(Message):
    """Base of a device's messages about its task."""

    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt


class ServedMessage(Message):
    """Base of a server's messages about a run.

    `epoch` is that in which the server goes on with a run that another server began; a device that has heard
    of a newer one refuses the message. It is not written in the epoch in which the run began.
    """

    epoch: Annotated[Epoch | None, Field(exclude_if=lambda epoch: epoch is None)] = None
