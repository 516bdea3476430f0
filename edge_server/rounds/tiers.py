"""Which capability tier a device belongs to."""

from __future__ import annotations

from schemas.values import CapabilityProfile

GIB = 1024**3
MEMORY_STEPS = (1 * GIB, 2 * GIB, 4 * GIB, 8 * GIB)
"""Of five tiers: below 1 GiB tier 1 (Pi Zero 2), below 2, below 4, below 8, and the rest tier 5."""


def tier_of(profile: CapabilityProfile, tiers: int, *, given: int | None = None) -> int:
    """The tier that the device states, else the one `given` to it by evidence, else one by its memory.

    It is in 1..`tiers`, 1 the weakest: that of a device of which nothing is known.
    """
    if profile.tier is not None:
        return min(profile.tier, tiers)
    if given is not None:
        return min(given, tiers)
    if profile.memory_bytes == 0:
        return 1
    steps = sum(profile.memory_bytes >= step for step in MEMORY_STEPS)
    return 1 + round(steps * (tiers - 1) / len(MEMORY_STEPS))
