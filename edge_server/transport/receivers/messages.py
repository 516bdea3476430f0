"""What the server and its receivers tell each other through their pipes: a JSON object per line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Frozen
from schemas.names import Name
from schemas.tensors.blobs import BlobRef


class Expect(Frozen):
    """To a receiver: a device has claimed this blob, so its chunks have a place; an earlier one's do not."""

    kind: Literal["expect"] = "expect"
    device: Name
    blob: BlobRef


class Placed(Frozen):
    """From a receiver: a chunk has come, `size` bytes without its frame; one that fits is in its place."""

    kind: Literal["placed"] = "placed"
    device: Name
    prefix: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    index: int = Field(ge=0)
    size: int = Field(ge=0)


class Misfit(Frozen):
    """From a receiver: what a device sent was no chunk, or not whole."""

    kind: Literal["misfit"] = "misfit"
    device: Name
    reason: str
    detail: str
    size: int = Field(ge=0)


class NoRoom(Frozen):
    """From a receiver: the disk takes no more."""

    kind: Literal["no-room"] = "no-room"
    errno: int
    detail: str


class Unable(Frozen):
    """From a receiver: it cannot do its part with this broker."""

    kind: Literal["unable"] = "unable"
    detail: str


class Ready(Frozen):
    """From a receiver: it has asked the broker for its share."""

    kind: Literal["ready"] = "ready"


ReceiverMessage = Expect | Placed | Misfit | NoRoom | Unable | Ready
_ADAPTER: TypeAdapter[ReceiverMessage] = TypeAdapter(Annotated[ReceiverMessage, Field(discriminator="kind")])


def encode_line(told: ReceiverMessage) -> bytes:
    """One line."""
    return told.model_dump_json().encode() + b"\n"


def decode_line(line: bytes) -> ReceiverMessage:
    """Read a line."""
    return _ADAPTER.validate_json(line)
