"""The masks of a device: its own one per segment, and one with every other holder of the segment.

Bonawitz et al. 2017, "Practical Secure Aggregation for Privacy-Preserving Machine Learning", section 4.2:
y_u = x_u + PRG(b_u) + sum over v > u of PRG(s_uv) - sum over v < u of PRG(s_uv), here per segment.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from edge_client.security.secure_aggregation import keys
from edge_client.security.secure_aggregation.quantization import Ring


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
