"""A round's model without one of its updates, computed from the model with all of them."""

from collections.abc import Mapping, Sequence

import numpy as np

from edge_server.strategy.aggregation.coverage import sum_weights
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.blobs import Arrays


def model_without(
    index: int, updates: Sequence[GlobalUpdate], weights: Sequence[float], before: Arrays, after: Arrays
) -> Mapping[str, np.ndarray]:
    """The model without update `index` of a round that led from `before` to `after`.

    A weighted mean is linear: without update k, of weight w and change d, the mean change M of total weight S
    is (S M - w d) / (S - w). A coordinate that k alone covers does not move. It is an estimate where the
    combiner is no mean, channels decay that no update covers, or the server's optimizer has momentum.
    """
    left = updates[index]
    arrays = {}
    for name in after:
        total = sum_weights([update.coverage.index_set(name) for update in updates], weights)
        own = weights[index] * left.coverage[name]
        moved = np.asarray(after[name], np.float64) - before[name]
        rest = total - own
        change = (total * moved - own * np.asarray(left.delta[name])) / np.where(rest > 0, rest, 1.0)
        arrays[name] = np.asarray(before[name] + np.where(rest > 0, change, 0.0), after[name].dtype)
    return arrays
