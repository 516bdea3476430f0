"""Between the server and the gateway of a site, on the site's own topics.

A gateway passes its devices' messages on unchanged. These messages are about the site itself: its presence,
the terms of the run, and sums of its devices' updates.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.base import Digest, Frozen, Name
from schemas.messages.message import MAX_MESSAGE_BYTES, Message, ServedMessage
from schemas.strategy import Component
from schemas.tensors.chunks import BlobRef, digest_of, encode_json
from schemas.values import MAX_SITES, Attempt, Count, RoundNumber, Text


class SiteBirth(Message):
    """Retained: the gateway of a site is present. A higher `session` replaces a lower one."""

    kind: Literal["site-birth"] = "site-birth"
    site: Name
    session: int = Field(ge=0)


class SiteDeath(Message):
    """Last will, retained in place of the birth: the gateway of that `session`, and so its site, is gone."""

    kind: Literal["site-death"] = "site-death"
    site: Name
    session: int = Field(ge=0)


class SiteTerms(ServedMessage):
    """To a gateway: what it needs to examine and add the updates of a run.

    `sites` are the federation's; `groups` and `transforms` are those of its strategy. `parts` has, of each
    array that some tiers train, the first one that the same tiers train. At most `uploads_at_once` devices of
    the site upload at the same time.
    """

    kind: Literal["site-terms"] = "site-terms"
    site: Name
    run: Name
    sites: Annotated[tuple[Name, ...], Field(max_length=MAX_SITES)]
    groups: Annotated[tuple[Component, ...], Field(max_length=64)] = ()
    transforms: Annotated[tuple[Component, ...], Field(max_length=64)] = ()
    parts: Annotated[Mapping[Text, Text], Field(exclude_if=lambda parts: not parts)] = {}
    uploads_at_once: int = Field(default=32, ge=1)
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class SumMember(Frozen):
    """An update that a sum is to contain, with its whole `weight`; it is `staleness` rounds late."""

    attempt: Attempt
    digest: Digest
    weight: Count
    staleness: RoundNumber = 0


class SumRequest(ServedMessage):
    """To a gateway: add exactly these updates of its site's devices."""

    kind: Literal["sum-request"] = "sum-request"
    site: Name
    run: Name
    round: RoundNumber
    members: Annotated[Mapping[Name, SumMember], Field(min_length=1)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES

    @property
    def digest(self) -> str:
        """The sha256 of what is requested, hex, whichever server asks."""
        return digest_of(encode_json(self.model_copy(update={"epoch": None})))

    @property
    def weights(self) -> dict[str, int]:
        """The weights of the devices' updates."""
        return {device: member.weight for device, member in self.members.items()}


class SiteSum(Message):
    """From a gateway: the requested sum, as a blob, and the whole weights of its members.

    `request` is the digest of the request: a round that is begun again has other updates of the same members,
    whose sum is another one. Without a blob there is no such sum: the gateway does not have the updates of
    the devices in `lost`.
    """

    kind: Literal["site-sum"] = "site-sum"
    site: Name
    run: Name
    round: RoundNumber
    request: Digest
    members: Mapping[Name, Count] = {}
    blob: BlobRef | None = None
    lost: tuple[Name, ...] = ()
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES

    @model_validator(mode="after")
    def _one_or_the_other(self) -> "SiteSum":
        if (self.blob is None) != bool(self.lost):
            raise ValueError("either a blob or lost updates")
        return self
