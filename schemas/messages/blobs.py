"""Transfers of blobs: requested by the receiver, or published once for several devices."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, StringConstraints

from schemas.base import Digest, Frozen, Name
from schemas.messages.message import Message, ServedMessage
from schemas.tensors.chunks import BlobRef
from schemas.values import Attempt, Text

Url = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=4000)]
StoreUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._:\[\]-]+/([A-Za-z0-9._~/-]*/)?$")]
MAX_BLOBS = 100
DIGEST_HEADER = "X-Blob-Digest"


class ObjectStoreTerms(Frozen):
    """The object store of a run: its URL prefix `address`, for blobs of more than `above` bytes.

    In a `resumable` store an upload states its digest (`DIGEST_HEADER`) and resumes where it was interrupted
    (`Content-Range`); in others it starts again.
    """

    address: Annotated[StoreUrl, Field(max_length=1000)]
    above: int = Field(ge=0)
    resumable: bool = False

    def holds(self, ref: BlobRef) -> bool:
        """Whether a blob is large enough for the store; blobs sent with their message never are."""
        return ref.size > self.above and not ref.inline

    def has(self, url: str) -> bool:
        """Whether an address is within this store, without `..`, escapes or fragments in its path."""
        inside = url.removeprefix(self.address).partition("?")[0]
        return url.startswith(self.address) and not any(odd in inside for odd in ("..", "%", "\\", "#"))


class Addresses(Frozen):
    """Presigned, expiring addresses: `get` by the blobs' names in the task, `put` for the update.

    Anyone who has an address can use it, so addresses are secrets and never logged.
    """

    get: Annotated[Mapping[Text, Url], Field(max_length=MAX_BLOBS, repr=False)] = {}
    put: Annotated[Url | None, Field(repr=False)] = None


def strip_signature(url: str) -> str:
    """An address without its signature, as it may be logged."""
    return url.partition("?")[0]


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
