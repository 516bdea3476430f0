"""A store beside the broker for large blobs, and the addresses in it that one device may use for a while.

What a task says of the store is signed with it. The addresses are not, for they end after a while, and each
repeat of a task brings fresh ones. Nor need they be: a blob is known by its digest wherever it came from, and
a device goes to no address outside of the store that the task names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.base import Frozen
from schemas.tensors.chunks import BlobRef
from schemas.values import Text

Url = Annotated[str, StringConstraints(pattern=r"^https?://[!-~]+$", max_length=4000)]
StoreUrl = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._:\[\]-]+/([A-Za-z0-9._~/-]*/)?$")]
MAX_BLOBS = 100
DIGEST_HEADER = "X-Blob-Digest"


class ObjectStoreTerms(Frozen):
    """Where a run's large blobs lie: all that begin with `address`, those of more than `above` bytes.

    In one that is `resumable` an upload is named by its digest, too (`DIGEST_HEADER`), and goes on where it
    was cut (`Content-Range`); in others it begins again.
    """

    address: Annotated[StoreUrl, Field(max_length=1000)]
    above: int = Field(ge=0)
    resumable: bool = False

    def holds(self, ref: BlobRef) -> bool:
        """Whether a blob is large enough; one that rides along with its message never is."""
        return ref.size > self.above and not ref.inline

    def has(self, url: str) -> bool:
        """Whether an address is one of this store, and names its place there plainly."""
        inside = url.removeprefix(self.address).partition("?")[0]
        return url.startswith(self.address) and not any(odd in inside for odd in ("..", "%", "\\", "#"))


class Addresses(Frozen):
    """Signed and expiring addresses: `get` by the blobs' names in the task, `put` for the update.

    Whoever has one may use it, so they are told to nobody else, and never logged.
    """

    get: Annotated[Mapping[Text, Url], Field(max_length=MAX_BLOBS, repr=False)] = {}
    put: Annotated[Url | None, Field(repr=False)] = None


def shown(url: str) -> str:
    """An address as it may be logged: without its signature."""
    return url.partition("?")[0]
