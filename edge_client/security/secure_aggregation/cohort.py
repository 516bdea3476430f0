"""What a device knows of the cohort that it masks its update with, and the secrets that follow from it.

All secrets of an attempt come from its entropy, and those made after the cohort is known are bound to it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edge_client.security.secure_aggregation import keys, shamir
from schemas.messages import KeyShares, MaskCohort, TrainTask, UnmaskAnswer
from schemas.security.secure_aggregation import MaskingTerms, Member

Entrusted = Mapping[str, tuple[int, ...]]
"""By sender: its shares for this device, of its mask key and then of its seeds, one per segment it holds."""


@dataclass(frozen=True)
class Membership:
    """What a device knows of its cohort. `answer` is what it gave, and for whom, when asked to unmask."""

    device: str
    task: TrainTask
    entropy: bytes = field(repr=False)
    cohort: MaskCohort | None = None
    shares: KeyShares | None = None
    entrusted: Entrusted | None = field(default=None, repr=False)
    answer: tuple[frozenset[str], UnmaskAnswer] | None = None

    @property
    def terms(self) -> MaskingTerms:
        """What the round masks by."""
        assert self.task.masking is not None
        return self.task.masking

    @property
    def ready(self) -> bool:
        """Whether the masks are agreed: the update may be masked and sent."""
        return self.entrusted is not None

    @cached_property
    def members(self) -> dict[str, Member]:
        """Everyone that the cohort lists."""
        assert self.cohort is not None
        return {one.name: one for one in self.cohort.members}

    @property
    def partners(self) -> dict[str, Member]:
        """Those with whom the masks are agreed, this device included."""
        assert self.entrusted is not None
        return {name: one for name, one in self.members.items() if name in self.entrusted}

    @property
    def held(self) -> tuple[int, ...]:
        """The segments of this device's sub-model."""
        return self.terms.held(self.terms.specs.index(self.task.spec))

    @property
    def needed(self) -> int:
        """How many members must help to unmask."""
        return self.terms.needed(len(self.members))

    @property
    def about(self) -> dict[str, Any]:
        """What each message of this attempt says."""
        task = self.task
        named = {"federation": task.federation, "device": self.device, "run": task.run}
        return {**named, "round": task.round, "attempt": task.attempt}

    @cached_property
    def context(self) -> bytes:
        """What binds keys to this cohort and its terms."""
        assert self.cohort is not None
        return cohort_context(self.cohort, self.terms)


def points_of(names: Sequence[str]) -> dict[str, int]:
    """Where each member's shares lie, by the names of the whole cohort."""
    return {name: 1 + index for index, name in enumerate(sorted(names))}


def cohort_context(cohort: MaskCohort, terms: MaskingTerms) -> bytes:
    """A fingerprint of cohort and terms: devices that are told of different ones have no key in common."""
    to_all = cohort.model_copy(update={"device": "all"})
    return hashlib.sha256(f"{to_all.model_dump_json()} {terms.model_dump_json()}".encode()).digest()


def private_key(membership: Membership, use: str) -> bytes:
    """The device's X25519 key to `mask` or to `share`, made for this attempt."""
    task = membership.task
    attempt = f"{task.federation}/{task.run}/{task.round}/{task.attempt}/{membership.device}"
    return keys.derive(membership.entropy, f"private key to {use}", attempt.encode())


def seed(membership: Membership, segment: int) -> bytes:
    """The seed of the device's own mask of one segment."""
    return keys.derive(membership.entropy, f"seed of segment {segment}", membership.context)


def parcels(membership: Membership, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shares of all of this device's secrets for these members."""
    points = points_of(list(membership.members))
    secrets = [private_key(membership, "mask"), *(seed(membership, index) for index in membership.held)]
    split = [
        shamir.split(
            secret, membership.needed, [points[name] for name in names], _coefficients(membership, number)
        )
        for number, secret in enumerate(secrets)
    ]
    return {name: tuple(shares[points[name]] for shares in split) for name in names}


def _coefficients(membership: Membership, number: int) -> bytes:
    key = keys.derive(membership.entropy, f"sharing of secret {number}", membership.context)
    return keys.keystream(key, shamir.random_bytes_needed(membership.needed))


def sealed(membership: Membership, recipient: str, parcel: Sequence[int]) -> str:
    """A parcel as only `recipient` can read it."""
    key = _parcel_key(membership, recipient, membership.device, recipient)
    return keys.seal(key, b"".join(share.to_bytes(shamir.SHARE_BYTES, "big") for share in parcel)).hex()


def unsealed(membership: Membership, sender: str, text: str) -> tuple[int, ...]:
    """The parcel of `sender`; raises `PeerError` when it is not for this device in this cohort."""
    data = keys.unseal(_parcel_key(membership, sender, sender, membership.device), bytes.fromhex(text))
    pieces = range(0, len(data), shamir.SHARE_BYTES)
    return tuple(int.from_bytes(data[at : at + shamir.SHARE_BYTES], "big") for at in pieces)


def _parcel_key(membership: Membership, other: str, sender: str, recipient: str) -> bytes:
    public = bytes.fromhex(membership.members[other].share_key)
    secret = keys.agree(private_key(membership, "share"), public)
    return keys.derive(secret, f"parcel from {sender} to {recipient}", membership.context)
