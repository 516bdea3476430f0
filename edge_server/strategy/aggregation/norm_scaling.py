"""Transforms by norms: clients' layers are brought to one norm, and clients' steps to at most the usual one.

FedFA's scalable aggregation (Park and Joe-Wong 2024, Federated Learning with Flexible Architectures, section
4): sub-models of unlike widths end with weights of unlike magnitudes, and their plain mean belongs to none.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import median
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation import updates
from edge_server.strategy.aggregation.deltas import DeltaRows, Deltas, ScaledDeltas, as_deltas
from schemas.tensors.arrays import Arrays, kind_of

Norms = Mapping[str, float]


@updates.TransformTraits(scales=True)
@dataclass(frozen=True)
class ScaleToMeanNorm:
    """Multiply each weight matrix or kernel of a client's model by the clients' mean norm over its own.

    A norm is the Euclidean one of the weights whose magnitude is within `percentile` of the layer's; 0.95 is
    the paper's. The client's model is w + delta at the coordinates that it holds. Parameters of one axis and
    layers of norm 0 do not change.
    """

    percentile: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.percentile <= 1:
            raise ValueError("percentile must be above 0 and at most 1")

    def __call__(
        self, update: updates.GlobalUpdate, around: updates.TransformContext
    ) -> updates.GlobalUpdate:
        own, mean = self._norms(update, around.params), self._mean_norms(around)
        factors = {name: mean[name] / norm for name, norm in own.items() if norm > 0 and mean.get(name)}
        delta = ScaledModelDeltas(around.params, as_deltas(update.delta, around.channel_map), factors)
        return replace(update, delta=delta)

    def _mean_norms(self, around: updates.TransformContext) -> Norms:
        """The mean norm over the round's clients that hold the parameter."""
        known = _MEANS.setdefault(around, {})
        if self.percentile not in known:
            sums: dict[str, list[float]] = {}
            for source in around.sources:
                for name, norm in self._norms(
                    updates.to_global(source, around.channel_map), around.params
                ).items():
                    sums.setdefault(name, []).append(norm)
            known[self.percentile] = {name: float(np.mean(norms)) for name, norms in sums.items()}
        return known[self.percentile]

    def _norms(self, update: updates.GlobalUpdate, params: Arrays) -> Norms:
        """The norm of every weight matrix and kernel that the client holds."""
        norms = {}
        for name in update.source.groups["model"]:
            shape = kind_of(params, name)[1]
            if len(shape) >= 2:
                values, place = update.part(name, 0, shape[0])
                norms[name] = trimmed_norm(place.take(np.asarray(params[name])) + values, self.percentile)
        return norms


_MEANS: WeakKeyDictionary[updates.TransformContext, dict[float, Norms]] = WeakKeyDictionary()


class ScaledModelDeltas(Deltas):
    """The difference between a client's model w + delta, with some parameters scaled, and w."""

    def __init__(self, params: Arrays, changes: Deltas, factors: Norms) -> None:
        super().__init__(changes.channel_map)
        self._params, self._changes, self._factors = params, changes, factors

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        values, place = self._changes.part(name, start, stop)
        if name not in self._factors:
            return DeltaRows(values, place)
        before = place.take(np.asarray(self._params[name])[start:stop])
        scaled = self._factors[name] * (before + values) - before
        return DeltaRows(scaled.astype(np.float32), place)


def trimmed_norm(values: NDArray[np.float32], percentile: float) -> float:
    """The Euclidean norm of the values whose magnitude is at most the percentile of all magnitudes."""
    if not values.size:
        return 0.0
    sizes = np.abs(values.astype(np.float64)).ravel()
    return float(np.linalg.norm(sizes[sizes <= np.quantile(sizes, percentile)]))


@updates.TransformTraits(scales=True)
class ClipToMedianNorm:
    """Scale an update down to the median norm of the round: a long step is no way to outvote the others.

    A norm is the root mean square of the change of the trained weights that the client holds, which makes
    sub-models of unlike widths comparable (Sun et al. 2019, Can You Really Backdoor Federated Learning?,
    section 4.2, whose bound is a constant). Updates without a change have no part in the median.
    """

    def __init__(self) -> None:
        self._medians: WeakKeyDictionary[updates.TransformContext, float] = WeakKeyDictionary()

    def __call__(
        self, update: updates.GlobalUpdate, around: updates.TransformContext
    ) -> updates.GlobalUpdate:
        if around not in self._medians:
            norms = [step_norm(source) for source in around.sources]
            self._medians[around] = median([norm for norm in norms if norm > 0] or [0.0])
        norm, most = step_norm(update.source), self._medians[around]
        if norm <= most:
            return update
        delta = as_deltas(update.delta, around.channel_map)
        return replace(update, delta=ScaledDeltas(delta, most / norm, exempt=updates.is_statistic))


def step_norm(source: updates.ClientUpdate) -> float:
    """The root mean square of the changes of a client's trained weights; 0 if it sent none."""
    squares, count = 0.0, 0
    for name, array in source.groups["model"].items():
        if not updates.is_statistic(name):
            values = np.asarray(array, np.float64)
            squares, count = squares + float(np.square(values).sum()), count + values.size
    return math.sqrt(squares / count) if count else 0.0
