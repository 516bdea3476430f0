"""A test for drift: whether new examples differ from those that a device knows.

Each statistic of an example (a feature's mean, a model's loss) is compared by the two-sample test of
Kolmogorov and Smirnov; the smallest p-value times the number of statistics (Bonferroni) decides. If examples
are independent, at most a share `alarm_rate` of the tests raises an alarm without a drift. Overlapping
windows and slow signals are not independent, and raise more alarms.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.changes import Marks
from edge_client.data.example_record import ExampleRecord
from edge_client.data.local import LocalData
from schemas.values import DriftFinding

Values = NDArray[Any]
MAX_CHANNELS = 32
TERMS = 100  # terms of the series of Kolmogorov's distribution; far fewer matter


@dataclass(frozen=True, eq=False)
class DriftResult:
    """The marks of the new examples that were compared, and what was found if they differ."""

    marks: Marks
    finding: DriftFinding | None = None


DriftTest = Callable[[LocalData, ExampleRecord], DriftResult | None]
"""Compares the untested new examples with the known ones; None while there are too few."""


def kolmogorov_smirnov(first: Values, second: Values) -> float:
    """The p-value that two samples [N] and [M] are of one distribution.

    Two-sided, by Kolmogorov's limit distribution, which is cautious for small samples and for equal values.
    """
    points = np.concatenate([first, second])
    shares = (
        np.searchsorted(np.sort(values), points, side="right") / len(values) for values in (first, second)
    )
    distance = float(np.abs(np.subtract(*shares)).max())
    scaled = distance * np.sqrt(len(first) * len(second) / (len(first) + len(second)))
    if scaled < 0.2:
        # The probability is 1 within double precision, and the series does not converge.
        return 1.0
    j = np.arange(1, TERMS + 1)
    series = 2 * np.sum((-1.0) ** (j - 1) * np.exp(-2 * (j * scaled) ** 2))
    return float(np.clip(series, 0.0, 1.0))


def feature_statistics(images: Values) -> dict[str, Values]:
    """The mean and deviation [N] of each channel of examples [N, C, ...]; of rows [N, C] the values."""
    flat = images.reshape(*images.shape[:2], -1)[:, :MAX_CHANNELS].astype(np.float64)
    found = {f"mean of channel {c}": flat[:, c].mean(-1) for c in range(flat.shape[1])}
    if flat.shape[-1] > 1:
        found |= {f"deviation of channel {c}": flat[:, c].std(-1) for c in range(flat.shape[1])}
    return found


def most_different(pairs: Mapping[str, tuple[Values, Values]]) -> tuple[str, float]:
    """The name of the pair of samples that differs most, and its p-value among all pairs."""
    found = {name: kolmogorov_smirnov(known, fresh) for name, (known, fresh) in pairs.items()}
    name = min(found, key=lambda pair: found[pair])
    return name, min(1.0, found[name] * len(found))
