"""Sums and histograms of a device's examples, which the server adds to those of other devices.

Everything is in the units of the data, before its preprocessing, and in float64.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from schemas import statistics as names
from schemas.statistics import Ranges, StatisticsRequest
from schemas.tensors.arrays import AnyArray

Sums = dict[str, NDArray[np.float64]]
BLOCK_NUMBERS = 64 * 1024  # numbers that are converted to float64 at once


def statistics_of(data: LabelledData, request: StatisticsRequest, *, outputs: int) -> dict[str, Sums]:
    """The groups of an answer (`schemas.statistics`); `data` has at least one example.

    `outputs` is the number of classes of the network, which may be more than the data has.
    """
    kind, groups = (
        data.learning_task.labels,
        {names.FEATURES: sums_of(data.images, request.features, request.bins)},
    )
    if kind == "numbers":
        groups[names.TARGETS] = sums_of(data.labels, request.targets, request.bins)
    elif kind != "none":
        counts = _class_counts(data)
        groups[names.LABELS] = {
            names.COUNT: np.pad(counts.astype(np.float64), (0, max(0, outputs - len(counts))))
        }
    return groups


def _class_counts(data: LabelledData) -> NDArray[Any]:
    """The examples of each class; a picture with boxes is one of each class that they have."""
    if data.labels.ndim == 1:
        return np.bincount(data.labels, minlength=data.num_classes)
    flags = (data.labels[:, :, :1] == np.arange(data.num_classes)).any(1) if data.has_boxes else data.labels
    return np.asarray((flags > 0.5).sum(0))


def not_finite(data: LabelledData) -> str:
    """The first feature, or number to learn, with a value that is not finite: `feature 3`; empty without."""
    checked = {"feature": data.images}
    if data.learning_task.labels == "numbers":
        checked["target"] = data.labels
    for name, values in checked.items():
        for block in _blocks(values):
            odd = ~np.isfinite(block).all(1)
            if odd.any():
                return f"{name} {int(np.argmax(odd)) + 1}"
    return ""


def sums_of(values: AnyArray, ranges: Ranges | None = None, bins: int = 0) -> Sums:
    """Count, sum, sum of squares, least and most of each feature of values [N, F, ...], N at least 1.

    Sums are of `value - centre`, least and most are values. With `bins` the histogram [F, bins + 2] is there,
    too; a value on a bin's edge is in the upper bin, and one at `high` in the last.
    """
    count = values.shape[1]
    centre = np.zeros(count) if ranges is None else np.asarray(ranges.centre, np.float64)
    found = {name: np.zeros(count) for name in (names.COUNT, names.SUM, names.SQUARES)}
    found |= {names.MIN: np.full(count, np.inf), names.MAX: np.full(count, -np.inf)}
    if bins:
        found[names.HISTOGRAM] = np.zeros((count, bins + 2))
    for block in _blocks(values):
        apart = block - centre[:, None]
        found[names.COUNT] += block.shape[1]
        found[names.SUM] += apart.sum(1)
        found[names.SQUARES] += np.square(apart).sum(1)
        found[names.MIN] = np.minimum(found[names.MIN], block.min(1))
        found[names.MAX] = np.maximum(found[names.MAX], block.max(1))
        if bins and ranges is not None:
            found[names.HISTOGRAM] += _histogram(block, ranges, bins)
    return found


def _blocks(values: AnyArray) -> Iterator[NDArray[np.float64]]:
    """The values as [F, M], some examples at a time."""
    count, features = values.shape[:2]
    step = max(1, BLOCK_NUMBERS // max(1, int(np.prod(values.shape[1:]))))
    for start in range(0, count, step):
        block = values[start : start + step].astype(np.float64)
        yield np.ascontiguousarray(np.moveaxis(block, 1, 0)).reshape(features, -1)


def _histogram(block: NDArray[np.float64], ranges: Ranges, bins: int) -> NDArray[np.float64]:
    """How many values [F, M] are in each bin [F, bins + 2]."""
    low, high = (np.asarray(edge, np.float64)[:, None] for edge in (ranges.low, ranges.high))
    width = np.where(high > low, (high - low) / bins, 1.0)
    inside = 1 + np.clip(np.floor((block - low) / width), 0, bins - 1)
    place = np.where(block < low, 0, np.where(block > high, bins + 1, inside)).astype(np.int64)
    rows = place + (bins + 2) * np.arange(len(block))[:, None]
    counts: NDArray[Any] = np.bincount(rows.reshape(-1), minlength=len(block) * (bins + 2))
    return counts.reshape(len(block), bins + 2).astype(np.float64)
