"""The six messages that agree on the masks of a round and remove them, in this order."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Name
from schemas.messages.message import MAX_MESSAGE_BYTES, ServedMessage, TaskMessage
from schemas.security.secure_aggregation import MAX_COHORT, Key, Member, Sealed, Share
from schemas.values import Attempt, RoundNumber


class _ToMember(ServedMessage):
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt


class KeyAdvertisement(TaskMessage):
    """A device's public keys for masking its update, made for this attempt only."""

    kind: Literal["key-advertisement"] = "key-advertisement"
    mask_key: Key
    share_key: Key


class MaskCohort(_ToMember):
    """To a device that has advertised keys: the cohort. Every member gets the same list."""

    kind: Literal["mask-cohort"] = "mask-cohort"
    members: Annotated[tuple[Member, ...], Field(min_length=1, max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class KeyShares(TaskMessage):
    """A device's shares of its secrets, one parcel per other member, sealed for that member."""

    kind: Literal["key-shares"] = "key-shares"
    shares: Annotated[Mapping[Name, Sealed], Field(max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class EntrustedShares(_ToMember):
    """To a member: the parcels for it, by sender. Members that sent none are out of the cohort."""

    kind: Literal["entrusted-shares"] = "entrusted-shares"
    shares: Annotated[Mapping[Name, Sealed], Field(max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class UnmaskRequest(_ToMember):
    """To a member whose update counts: the members whose masked updates the server has, itself included."""

    kind: Literal["unmask-request"] = "unmask-request"
    survivors: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class UnmaskAnswer(TaskMessage):
    """Shares that unmask the sum: for each member either those of its seeds or that of its key, never both.

    `seeds` has, for each survivor, one share per segment to be revealed, in order; `keys` has the others.
    """

    kind: Literal["unmask-answer"] = "unmask-answer"
    seeds: Annotated[Mapping[Name, tuple[Share, ...]], Field(max_length=MAX_COHORT)]
    keys: Annotated[Mapping[Name, Share], Field(max_length=MAX_COHORT)] = {}
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES
