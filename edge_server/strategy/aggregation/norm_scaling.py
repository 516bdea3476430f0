"""FedFA's scalable aggregation: clients' layers are brought to one norm (Park and Joe-Wong 2024, section 4).

Federated Learning with Flexible Architectures. Sub-models of unlike widths end with weights of unlike
magnitudes, and their plain mean belongs to none of them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation import updates
from edge_server.strategy.aggregation.deltas import DeltaRows, Deltas, as_deltas
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
