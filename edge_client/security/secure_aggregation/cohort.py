"""A device's membership in a cohort, and the secrets that are derived from it.

All secrets of an attempt come from its entropy; those made after the cohort is known are bound to it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from edge_client.security.secure_aggregation import keys
from schemas.messages import KeyShares, MaskCohort, TrainTask, UnmaskAnswer
from schemas.security.secure_aggregation import MaskingTerms, Member

# Per sender, its shares for this device: of its mask key, then of its seed for each segment it holds.
Entrusted = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Membership:
    """A device's membership in a cohort. `answer`: the survivors of the unmask request, and the answer."""

    device: str
    task: TrainTask
    entropy: bytes = field(repr=False)
    cohort: MaskCohort | None = None
    shares: KeyShares | None = None
    entrusted: Entrusted | None = field(default=None, repr=False)
    answer: tuple[frozenset[str], UnmaskAnswer] | None = None

    @property
    def terms(self) -> MaskingTerms:
        assert self.task.masking is not None
        return self.task.masking

    @property
    def ready(self) -> bool:
        """Whether the masks are agreed, so that the update can be masked."""
        return self.entrusted is not None

    @cached_property
    def members(self) -> dict[str, Member]:
        assert self.cohort is not None
        return {member.name: member for member in self.cohort.members}

    @property
    def partners(self) -> dict[str, Member]:
        """The members with agreed masks, this device included."""
        assert self.entrusted is not None
        return {name: member for name, member in self.members.items() if name in self.entrusted}

    @property
    def own_segments(self) -> tuple[int, ...]:
        return self.terms.segments_of(self.terms.specs.index(self.task.spec))

    @property
    def min_helpers(self) -> int:
        return self.terms.min_helpers(len(self.members))

    @property
    def header(self) -> dict[str, Any]:
        """The fields that all messages of this attempt have."""
        task = self.task
        named = {"federation": task.federation, "device": self.device, "run": task.run}
        return {**named, "round": task.round, "attempt": task.attempt}

    @cached_property
    def context(self) -> bytes:
        assert self.cohort is not None
        return cohort_context(self.cohort, self.terms)


def share_points(names: Sequence[str]) -> dict[str, int]:
    """The point of each member's shares, given the names of the whole cohort."""
    return {name: 1 + index for index, name in enumerate(sorted(names))}


def cohort_context(cohort: MaskCohort, terms: MaskingTerms) -> bytes:
    """A fingerprint of cohort and terms: devices that are sent different ones share no key."""
    to_all = cohort.model_copy(update={"device": "all"})
    return hashlib.sha256(f"{to_all.model_dump_json()} {terms.model_dump_json()}".encode()).digest()


def private_key(membership: Membership, use: str) -> bytes:
    """The device's X25519 private key of this attempt; `use` is `mask` or `share`."""
    task = membership.task
    attempt = f"{task.federation}/{task.run}/{task.round}/{task.attempt}/{membership.device}"
    return keys.derive(membership.entropy, f"private key to {use}", attempt.encode())


def segment_seed(membership: Membership, segment: int) -> bytes:
    return keys.derive(membership.entropy, f"seed of segment {segment}", membership.context)


def split_secrets(membership: Membership, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The shares of all secrets of this device, per member in `names`."""
    points, needed = share_points(list(membership.members)), membership.min_helpers
    seeds = [segment_seed(membership, index) for index in membership.own_segments]
    split = []
    for number, secret in enumerate([private_key(membership, "mask"), *seeds]):
        key = keys.derive(membership.entropy, f"sharing of secret {number}", membership.context)
        coefficients = keys.keystream(key, keys.random_bytes_needed(needed))
        split.append(keys.split(secret, needed, [points[name] for name in names], coefficients))
    return {name: tuple(shares[points[name]] for shares in split) for name in names}


def seal_parcel(membership: Membership, recipient: str, parcel: Sequence[int]) -> str:
    """Encrypt a parcel for `recipient`, in hex."""
    key = _parcel_key(membership, recipient, membership.device, recipient)
    return keys.seal(key, b"".join(share.to_bytes(keys.SHARE_BYTES, "big") for share in parcel)).hex()


def open_parcel(membership: Membership, sender: str, text: str) -> tuple[int, ...]:
    """Decrypt the parcel of `sender`; raises `PeerError` unless it is for this device in this cohort."""
    data = keys.unseal(_parcel_key(membership, sender, sender, membership.device), bytes.fromhex(text))
    pieces = range(0, len(data), keys.SHARE_BYTES)
    return tuple(int.from_bytes(data[at : at + keys.SHARE_BYTES], "big") for at in pieces)


def _parcel_key(membership: Membership, other: str, sender: str, recipient: str) -> bytes:
    public = bytes.fromhex(membership.members[other].share_key)
    secret = keys.agree(private_key(membership, "share"), public)
    return keys.derive(secret, f"parcel from {sender} to {recipient}", membership.context)
