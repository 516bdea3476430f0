"""The messages between the server and its receivers: one JSON object per line through their pipes."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from schemas.base import Frozen, Name
from schemas.tensors.chunks import BlobRef


class Expect(Frozen):
    """To a receiver: write the chunks of this blob, which a device has claimed; forget its earlier claim."""

    kind: Literal["expect"] = "expect"
    device: Name
    blob: BlobRef


class Placed(Frozen):
    """From a receiver: a chunk of `size` bytes without its header has arrived, and is written if it fits."""

    kind: Literal["placed"] = "placed"
    device: Name
    prefix: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
    index: int = Field(ge=0)
    size: int = Field(ge=0)


class Misfit(Frozen):
    """From a receiver: a device sent something that is no chunk, or a damaged one."""

    kind: Literal["misfit"] = "misfit"
    device: Name
    reason: str
    detail: str
    size: int = Field(ge=0)


class NoRoom(Frozen):
    """From a receiver: the disk is full."""

    kind: Literal["no-room"] = "no-room"
    errno: int
    detail: str


class Unable(Frozen):
    """From a receiver: it cannot work with this broker."""

    kind: Literal["unable"] = "unable"
    detail: str


class Ready(Frozen):
    """From a receiver: it has subscribed."""

    kind: Literal["ready"] = "ready"


ReceiverMessage = Expect | Placed | Misfit | NoRoom | Unable | Ready
_ADAPTER: TypeAdapter[ReceiverMessage] = TypeAdapter(Annotated[ReceiverMessage, Field(discriminator="kind")])


def encode_line(message: ReceiverMessage) -> bytes:
    return message.model_dump_json().encode() + b"\n"


def decode_line(line: bytes) -> ReceiverMessage:
    return _ADAPTER.validate_json(line)
