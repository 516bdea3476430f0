"""What secure aggregation is agreed on: sub-models, the segments that they share, who is in the cohort."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from schemas.base import Frozen
from schemas.names import Name
from schemas.submodel import SubModelSpec

LEAST_HOLDERS = 3
"""Of a sum over two, either of them learns the other's part."""
MAX_COHORT = 500
"""Shares of so many devices and five segments still fit a message."""

Key = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
"""An X25519 public key, 32 bytes in hex."""
Share = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{66}$")]
"""One share of a secret: a number below 2^257, 33 bytes in hex."""
Sealed = Annotated[str, StringConstraints(pattern=r"^(?:[0-9a-f]{2}){16,4096}$")]
"""What only one other device can read, in hex."""


class MaskedSegment(Frozen):
    """Coordinates that are held by exactly the sub-models `holders` (indices of the terms' `specs`)."""

    holders: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    size: int = Field(ge=1)


class MaskingTerms(Frozen):
    """What every device of a round masks by; equal in all tasks of the round.

    Each number of an update is clipped to +-`value_range`; a device counts as `weighting` says, at most
    `max_weight`. A segment with fewer than `min_holders` holders stays hidden; `threshold` is the share of
    the cohort that must help to unmask.
    """

    specs: Annotated[tuple[SubModelSpec, ...], Field(min_length=1, max_length=64)]
    segments: Annotated[tuple[MaskedSegment, ...], Field(min_length=1, max_length=64)]
    value_range: float = Field(gt=0, le=1e6)
    weighting: Literal["examples", "equal"] = "examples"
    max_weight: int = Field(ge=1, lt=2**31)
    min_holders: int = Field(ge=LEAST_HOLDERS)
    threshold: float = Field(gt=0.5, le=1)

    @model_validator(mode="after")
    def _holders_are_sub_models(self) -> MaskingTerms:
        if any(max(segment.holders) >= len(self.specs) for segment in self.segments):
            raise ValueError("a segment is held by a sub-model that is not there")
        return self

    def held(self, sub_model: int) -> tuple[int, ...]:
        """The segments of a sub-model, by index."""
        return tuple(index for index, segment in enumerate(self.segments) if sub_model in segment.holders)

    def needed(self, members: int) -> int:
        """How many of `members` must help to unmask; more than half, whatever rounding does."""
        return max(members // 2 + 1, math.ceil(self.threshold * members - 1e-9))


class Member(Frozen):
    """A device of the cohort: its sub-model, and its two public keys for this attempt."""

    name: Name
    sub_model: int = Field(ge=0)
    mask_key: Key
    share_key: Key
