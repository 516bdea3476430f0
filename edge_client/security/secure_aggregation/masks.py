"""The masks of a device: its own one per segment, and one with every other holder of the segment.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", section 4.2:
y_u = x_u + PRG(b_u) + sum over v > u of PRG(s_uv) - sum over v < u of PRG(s_uv), here per segment.

Numbers are quantised to integers modulo 2^32, so that masks cancel exactly and no sum overflows. A device
sends q = round(x / range * w / max_weight * L), where x is clipped to +-range and L is
floor((2^31 - 1) / n): n of them add up to less than 2^31 in size, so the sum modulo 2^32 is the sum. Each q
is off by at most 1/2, hence the weighted mean over h holders by at most h / 2 * step / sum of w, where
step = range * max_weight / L. With 100 devices of equal weight and a range of 8 that is 2e-7.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_client.security.secure_aggregation import keys
from schemas.errors import PeerError, Reason

Ring = NDArray[np.uint32]
WEIGHT_LIMIT = 2**32 - 1  # the maximum sum of the weights of a cohort


@dataclass(frozen=True)
class Scale:
    """The quantisation in a cohort of `members` devices."""

    value_range: float
    max_weight: int
    members: int

    @property
    def levels(self) -> int:
        """L: the largest magnitude of a device's integers."""
        return (2**31 - 1) // self.members

    @property
    def step(self) -> float:
        """The change of a weighted sum when an integer changes by 1."""
        return self.value_range * self.max_weight / self.levels


def most_weight(examples: int, members: int) -> int:
    """The largest weight of a device: `examples`, unless the weights of the cohort could overflow."""
    return max(1, min(examples, WEIGHT_LIMIT // members, 2**31 - 1))


def quantise(values: NDArray[np.float32], weight: int, scale: Scale) -> Ring:
    """The weighted values [N] and the weight itself, as integers [N + 1]; `PeerError` if not finite."""
    if not np.isfinite(values).all():
        raise PeerError("the update has numbers that are not finite", reason=Reason.NOT_FINITE)
    counted = min(max(weight, 0), scale.max_weight)
    share = np.clip(values.astype(np.float64) / scale.value_range, -1, 1) * (counted / scale.max_weight)
    whole = np.rint(share * scale.levels).astype(np.int64)
    return np.append(whole, counted).astype(np.uint32)


def weighted_mean(total: Ring, scale: Scale) -> tuple[NDArray[np.float64], int]:
    """The mean [N] of a sum [N + 1] and the sum of weights; 0 without any weight."""
    weight = int(total[-1])
    signed = total[:-1].view(np.int32).astype(np.float64)
    return (signed * (scale.step / weight) if weight else np.zeros_like(signed)), weight


@dataclass(frozen=True)
class Masks:
    """The keys of the streams to add and to subtract, per segment that is sent."""

    added: Mapping[int, tuple[bytes, ...]]
    subtracted: Mapping[int, tuple[bytes, ...]]

    @property
    def segments(self) -> tuple[int, ...]:
        return tuple(sorted(self.added))


def stream(key: bytes, size: int) -> Ring:
    """`size` uniform numbers modulo 2^32, the same on every machine."""
    return np.frombuffer(keys.keystream(key, 4 * size), "<u4").astype(np.uint32, copy=False)


def pair_key(secret: bytes, segment: int, context: bytes) -> bytes:
    """The key of the stream that two devices share for a segment."""
    return keys.derive(secret, f"mask of segment {segment}", context)


def apply_masks(vectors: Mapping[int, Ring], masks: Masks) -> dict[int, Ring]:
    """Mask the vectors; segments without masks are left out, never sent unmasked."""
    added, subtracted = masks.added, masks.subtracted
    return {n: shift_vector(vectors[n], added=added[n], subtracted=subtracted[n]) for n in masks.segments}


def shift_vector(vector: Ring, *, added: tuple[bytes, ...], subtracted: tuple[bytes, ...]) -> Ring:
    """The vector plus the streams of keys `added`, minus those of `subtracted`, modulo 2^32."""
    total = vector.copy()
    for key in added:
        total += stream(key, total.size)
    for key in subtracted:
        total -= stream(key, total.size)
    return total
