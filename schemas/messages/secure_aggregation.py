"""How the masks of a round are agreed on and undone: six messages, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.message import MAX_MESSAGE_BYTES, Message
from schemas.names import Name
from schemas.security.secure_aggregation import MAX_COHORT, Key, Member, Sealed, Share
from schemas.values import Attempt, RoundNumber


class KeyAdvertisement(Message):
    """A device would mask its update of this task: its public keys, made for this attempt alone."""

    kind: Literal["key-advertisement"] = "key-advertisement"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    mask_key: Key
    share_key: Key


class MaskCohort(Message):
    """To a device that has advertised: with whom it agrees on masks. Every member gets the same list."""

    kind: Literal["mask-cohort"] = "mask-cohort"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    members: Annotated[tuple[Member, ...], Field(min_length=1, max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class KeyShares(Message):
    """A device's shares of its secrets, one sealed parcel per other member; the server cannot open any."""

    kind: Literal["key-shares"] = "key-shares"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    shares: Annotated[Mapping[Name, Sealed], Field(max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class EntrustedShares(Message):
    """To a member: the parcels for it, by sender. Who sent none is out: nobody masks with it."""

    kind: Literal["entrusted-shares"] = "entrusted-shares"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    shares: Annotated[Mapping[Name, Sealed], Field(max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class UnmaskRequest(Message):
    """To a member whose update counts: of whom the server has a masked update, that member included."""

    kind: Literal["unmask-request"] = "unmask-request"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    survivors: Annotated[tuple[Name, ...], Field(min_length=1, max_length=MAX_COHORT)]
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class UnmaskAnswer(Message):
    """What lets the sum be unmasked: of each member either its seeds' shares or its key's, never both.

    `seeds`: of each survivor, one share per segment that is to be revealed, in order; `keys`: of the others.
    """

    kind: Literal["unmask-answer"] = "unmask-answer"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    seeds: Annotated[Mapping[Name, tuple[Share, ...]], Field(max_length=MAX_COHORT)]
    keys: Annotated[Mapping[Name, Share], Field(max_length=MAX_COHORT)] = {}
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES
