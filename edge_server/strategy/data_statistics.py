"""Statistics of all devices' examples, pooled from additive answers (`schemas.statistics`).

The first round finds means and ranges; every further one sums around the means that are known, and fills
histograms over the ranges that are known.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas import statistics
from schemas.tensors.arrays import Arrays

STATISTICS: Final = "statistics"  # what a round has observed of the data, in the strategy's state
ROUNDS = 2
BINS = 256
FINE_BINS = 1024  # bins of a histogram, if there are at most `FEW` features and numbers to learn
FEW = 64
# A histogram reaches this many standard deviations from the mean, or to the least and most value. By
# Chebyshev's inequality at most 1/64 of the values lie outside.
WIDTH = 8.0
NOISE = 1e-6  # standard deviations below this part of the mean are rounding where sums are around 0

Figures = dict[str, Any]
Numbers = NDArray[np.float64]
Rough = tuple[float, float]  # a mean and a standard deviation


def next_request(
    known: Mapping[str, Any] | None, first: statistics.StatisticsRequest
) -> statistics.StatisticsRequest:
    """What devices measure next, given the pooled statistics that are `known`; `first` without any."""
    if known is None:
        return first
    return _request(
        {kind: _ranges(known[kind]) for kind in (statistics.FEATURES, statistics.TARGETS) if kind in known}
    )


def rough_request(features: Sequence[Rough], targets: Sequence[Rough]) -> statistics.StatisticsRequest:
    """A first request around a rough mean and standard deviation of each feature and number to learn."""
    parts = ((statistics.FEATURES, features), (statistics.TARGETS, targets))
    return _request({kind: _around(roughly) for kind, roughly in parts if roughly})


def _around(roughly: Sequence[Rough]) -> statistics.Ranges:
    return statistics.Ranges(
        centre=tuple(mean for mean, _ in roughly),
        low=tuple(mean - WIDTH * std for mean, std in roughly),
        high=tuple(mean + WIDTH * std for mean, std in roughly),
    )


def _request(ranges: Mapping[str, statistics.Ranges]) -> statistics.StatisticsRequest:
    features = sum(len(each.centre) for each in ranges.values())
    return statistics.StatisticsRequest(bins=FINE_BINS if features <= FEW else BINS, **ranges)


def pool_statistics(
    updates: Sequence[ClientUpdate], request: statistics.StatisticsRequest, believed: Mapping[str, float]
) -> Figures:
    """The figures of all examples, equal for every order of the `updates`, of which there is at least one.

    `believed` is the share of each client's examples that counts. `features` and `targets` have arrays [F]:
    count, mean, variance, least, most, and with bins low, high and the histogram [F, bins + 2].
    """
    ordered = sorted(updates, key=lambda update: update.client)
    shares = [believed[update.client] for update in ordered]
    answers = [update.groups for update in ordered]
    found: Figures = {
        "devices": sum(
            int(answer[statistics.DEVICES][statistics.COUNT][0]) if statistics.DEVICES in answer else 1
            for answer in answers
        ),
        "examples": float(sum(update.examples for update in ordered)),
    }
    for kind, ranges in ((statistics.FEATURES, request.features), (statistics.TARGETS, request.targets)):
        if kind in answers[0]:
            found[kind] = _moments([answer[kind] for answer in answers], shares, ranges)
    if statistics.LABELS in answers[0]:
        found[statistics.LABELS] = _sum(
            [answer[statistics.LABELS] for answer in answers], statistics.COUNT, shares
        )
    return found


def _moments(answers: Sequence[Arrays], shares: Sequence[float], ranges: statistics.Ranges | None) -> Figures:
    count, total, squares = (
        _sum(answers, name, shares) for name in (statistics.COUNT, statistics.SUM, statistics.SQUARES)
    )
    apart = total / count
    centre = np.zeros(len(count)) if ranges is None else np.asarray(ranges.centre)
    found = {
        statistics.COUNT: count,
        "mean": centre + apart,
        "variance": np.maximum(squares / count - np.square(apart), 0.0),
        statistics.MIN: np.min([answer[statistics.MIN] for answer in answers], axis=0),
        statistics.MAX: np.max([answer[statistics.MAX] for answer in answers], axis=0),
    }
    if ranges is not None:
        ends = (("low", ranges.low), ("high", ranges.high))
        found |= {name: np.broadcast_to(np.asarray(end), count.shape) for name, end in ends}
        found[statistics.HISTOGRAM] = _sum(answers, statistics.HISTOGRAM, shares)
    return found


def _sum(answers: Sequence[Arrays], name: str, shares: Sequence[float]) -> Numbers:
    total = np.zeros(answers[0][name].shape)
    for answer, share in zip(answers, shares, strict=True):
        total += share * np.asarray(answer[name], np.float64)
    return total


def _ranges(figures: Mapping[str, Any]) -> statistics.Ranges:
    mean = np.asarray(figures["mean"], np.float64)
    spread = WIDTH * np.sqrt(np.maximum(figures["variance"], np.square(NOISE * mean)))
    low = np.minimum(np.maximum(figures[statistics.MIN], mean - spread), mean)
    high = np.maximum(np.minimum(figures[statistics.MAX], mean + spread), mean)
    return statistics.Ranges(centre=tuple(mean.tolist()), low=tuple(low.tolist()), high=tuple(high.tolist()))
