"""Figures by class: the share of a class's examples that a model recognises, and that share's interval."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edge_server.storage.records import MeasuredDevice, RoundRecord
from schemas.values import ClassCounts

TEST_DATA, ALL_DEVICES = "test data", "all devices"
Counts = Mapping[str, ClassCounts]


@dataclass(frozen=True)
class ClassFigure:
    """A class's examples, those that are recognised, their share and its 95 % interval (Wilson 1927)."""

    examples: int
    right: int
    recall: float | None
    interval: tuple[float, float] | None


def class_figures(counts: Counts) -> dict[str, ClassFigure]:
    """The figures of each class; a class without examples has no share."""
    return {name: _figure(*found) for name, found in counts.items()}


def _figure(examples: int, right: int) -> ClassFigure:
    recall = right / examples if examples else None
    return ClassFigure(examples, right, recall, None if recall is None else wilson(recall, examples))


def sum_by_class(devices: Iterable[MeasuredDevice]) -> dict[str, ClassCounts]:
    sums = dict[str, ClassCounts]()
    for device in devices:
        for name, (examples, right) in device.by_class.items():
            before = sums.get(name, (0, 0))
            sums[name] = (before[0] + examples, before[1] + right)
    return sums


def newest_counts(history: Sequence[RoundRecord]) -> tuple[int, dict[str, Counts]]:
    """The newest round that counted by class, and its counts: of the test data, of all devices, of each.

    Round 0 without any.
    """
    for record in reversed(history):
        devices = {name: device.by_class for name, device in record.measured.items()}
        found = {
            TEST_DATA: record.test_by_class,
            ALL_DEVICES: sum_by_class(record.measured.values()),
            **devices,
        }
        if counted := {name: counts for name, counts in found.items() if counts}:
            return record.round, counted
    return 0, {}


Z = 1.959964  # The 97.5 % point of the normal distribution
RESAMPLES, MIN_DEVICES = 2000, 3  # Bootstrap resamples, and the least number of devices for them


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
    if len(values) < MIN_DEVICES:
        return None
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    powers, weights = np.asarray(values) ** power, np.asarray(examples, np.float64)
    means = ((powers * weights)[chosen].sum(1) / weights[chosen].sum(1)) ** (1 / power)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)
