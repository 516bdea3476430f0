"""Confidence intervals of figures that devices measured."""

import math
from collections.abc import Sequence

import numpy as np

Z = 1.959964
"""The 97.5 % point of the normal distribution."""
RESAMPLES, FEWEST = 2000, 3
"""Bootstrap resamples, and the least number of devices for them."""


def wilson(share: float, examples: int) -> tuple[float, float] | None:
    """The 95 % interval of a share of examples (Wilson 1927); None without examples."""
    if examples <= 0:
        return None
    centre = share + Z**2 / (2 * examples)
    width = Z * math.sqrt(share * (1 - share) / examples + Z**2 / (4 * examples**2))
    scale = 1 + Z**2 / examples
    return max(0.0, (centre - width) / scale), min(1.0, (centre + width) / scale)


def over_devices(
    values: Sequence[float], examples: Sequence[float], *, power: int
) -> tuple[float, float] | None:
    """The 95 % interval of the devices' mean of this power, weighted by examples, by bootstrap over devices.

    None for fewer than three devices.
    """
    if len(values) < FEWEST:
        return None
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    powers, weights = np.asarray(values) ** power, np.asarray(examples, np.float64)
    means = ((powers * weights)[chosen].sum(1) / weights[chosen].sum(1)) ** (1 / power)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
