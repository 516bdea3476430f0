"""How blobs come: asked for by whoever wants them, or published once for several devices."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.message import Message
from schemas.names import Digest, Name
from schemas.values import Attempt


class BlobRequest(Message):
    """Send me up to `count` chunks of this blob, from chunk `first` on. The receiver pulls."""

    kind: Literal["blob-request"] = "blob-request"
    device: Name
    digest: Digest
    first: int = Field(ge=0)
    count: int = Field(ge=1, le=64)


class BroadcastProgress(Message):
    """The device has heard a shared topic up to chunk `index` of this blob; said every few megabytes."""

    kind: Literal["heard"] = "heard"
    device: Name
    run: Name
    attempt: Attempt
    digest: Digest
    index: int = Field(ge=0)


class BroadcastEnd(Message):
    """To a device: nothing more of these blobs comes on a shared topic for it; it asks for what it lacks."""

    kind: Literal["broadcast-end"] = "broadcast-end"
    device: Name
    run: Name
    attempt: Attempt
    digests: Annotated[tuple[Digest, ...], Field(max_length=256)]
    max_bytes: ClassVar[int] = 20 * 1024
