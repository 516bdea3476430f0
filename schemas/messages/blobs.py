"""Transfers of blobs: requested by the receiver, or published once for several devices."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.message import Message, ServedMessage
from schemas.names import Digest, Name
from schemas.values import Attempt

UNKNOWN_DIGEST = "0" * 64  # a digest that no blob has: a device asks for it where no server has answered


class BlobRequest(Message):
    """Request for up to `count` chunks of a blob, from chunk `first` on."""

    kind: Literal["blob-request"] = "blob-request"
    device: Name
    digest: Digest
    first: int = Field(ge=0)
    count: int = Field(ge=1, le=64)


class BroadcastProgress(Message):
    """The device has received chunk `index` of a blob on a shared topic; sent every few megabytes."""

    kind: Literal["heard"] = "heard"
    device: Name
    run: Name
    attempt: Attempt
    digest: Digest
    index: int = Field(ge=0)


class BroadcastEnd(ServedMessage):
    """To a device: the broadcast of these blobs is over; it may request missing chunks."""

    kind: Literal["broadcast-end"] = "broadcast-end"
    device: Name
    run: Name
    attempt: Attempt
    digests: Annotated[tuple[Digest, ...], Field(max_length=256)]
    max_bytes: ClassVar[int] = 20 * 1024
