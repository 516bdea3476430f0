"""The capability tier of a device."""

from schemas.values import CapabilityProfile

GIB = 1024**3
MEMORY_STEPS = (1 * GIB, 2 * GIB, 4 * GIB, 8 * GIB)
"""Upper bounds of tiers 1 to 4 of five; a Pi Zero 2 (below 1 GiB) is in tier 1."""


def tier_of(profile: CapabilityProfile, tiers: int, *, given: int | None = None) -> int:
    """The tier that the device states, else the tier `given` by evidence, else the tier of its memory.

    In 1..`tiers`, 1 the weakest; 1 if nothing is known of the device.
    """
    if profile.tier is not None:
        return min(profile.tier, tiers)
    if given is not None:
        return min(given, tiers)
    if profile.memory_bytes == 0:
        return 1
    steps = sum(profile.memory_bytes >= step for step in MEMORY_STEPS)
    return 1 + round(steps * (tiers - 1) / len(MEMORY_STEPS))
