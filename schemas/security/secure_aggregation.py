"""Terms of secure aggregation: sub-models, the segments that they share, members of the cohort."""

import math
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from schemas.base import Frozen, Name
from schemas.submodel import SubModelSpec

MIN_HOLDERS = 3  # in a sum over two devices, each learns the other's update
MAX_COHORT = 500  # shares of 500 devices and five segments still fit a message

Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]  # an X25519 public key, 32 bytes in hex
Share = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{66}$")]  # of a secret: below 2^257, in hex
Sealed = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{2}){16,4096}$")]  # for one device, hex


class MaskedSegment(Frozen):
    """Coordinates held by exactly the sub-models `holders` (indices into the terms' `specs`)."""

    holders: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    size: int = Field(ge=1)


class MaskingTerms(Frozen):
    """How the devices of a round mask their updates; equal in all tasks of the round.

    Numbers are clipped to +-`value_range`. A device's weight follows `weighting`, at most `max_weight`. A
    segment with fewer than `min_holders` holders is never unmasked; the share `threshold` of the cohort must
    help to unmask.
    """

    specs: Annotated[tuple[SubModelSpec, ...], Field(min_length=1, max_length=64)]
    segments: Annotated[tuple[MaskedSegment, ...], Field(min_length=1, max_length=64)]
    value_range: float = Field(gt=0, le=1e6)
    weighting: Literal["examples", "equal"] = "examples"
    max_weight: int = Field(ge=1, lt=2**31)
    min_holders: int = Field(ge=MIN_HOLDERS)
    threshold: float = Field(gt=0.5, le=1)

    @model_validator(mode="after")
    def _holders_are_sub_models(self) -> "MaskingTerms":
        if any(max(segment.holders) >= len(self.specs) for segment in self.segments):
            raise ValueError("a segment is held by a sub-model that is not there")
        return self

    def segments_of(self, sub_model: int) -> tuple[int, ...]:
        """Indices of the segments that a sub-model holds."""
        return tuple(index for index, segment in enumerate(self.segments) if sub_model in segment.holders)

    def min_helpers(self, members: int) -> int:
        """How many of `members` must help to unmask: always more than half, despite rounding."""
        return max(members // 2 + 1, math.ceil(self.threshold * members - 1e-9))


class Member(Frozen):
    """A device of the cohort: the index of its sub-model, and its two public keys for this attempt."""

    name: Name
    sub_model: int = Field(ge=0)
    mask_key: Key
    share_key: Key
