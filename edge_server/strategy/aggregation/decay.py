"""Channels that many devices lack become smaller, so that they do not fit the data of their few holders."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.blocks import as_rows, lazy_arrays
from edge_server.strategy.aggregation.coverage import UpdateCoverage, sum_weights
from edge_server.strategy.aggregation.means import kinds_of
from edge_server.strategy.aggregation.updates import GlobalUpdate, is_statistic
from schemas.tensors.arrays import rows_of
from schemas.tensors.blobs import Array, Arrays


def decay_missing(
    change: Arrays, updates: Sequence[GlobalUpdate], weights: NDArray[np.float64], params: Arrays
) -> Arrays:
    """The change of the model w, less lambda s^2 w, where s is the share of clients that lack a coordinate.

    Shares are of `weights` [K], among the clients that cover the coordinate; lambda is the `decay` of the
    transform that filled it (`GlobalUpdate`). The square spares what most clients hold. Running statistics do
    not decay. Computed a few rows at a time, from sub-models alone: updates that were summed elsewhere count.
    """
    if not any(update.decay for update in updates):
        return change
    decays = [weight * update.decay for update, weight in zip(updates, weights, strict=True)]

    def rows(name: str, start: int, stop: int) -> Array:
        made: Array = as_rows(rows_of(change, name, start, stop))
        if is_statistic(name):
            return made

        def summed(coverages: Sequence[UpdateCoverage], summands: Sequence[float]) -> NDArray[np.float64]:
            parts = [coverage.index_set(name).slice_rows(start, stop)[1] for coverage in coverages]
            return sum_weights(parts, summands)

        covered, held = [update.coverage for update in updates], [update.held for update in updates]
        total = summed(covered, list(weights))
        lacking, lost = total - summed(held, list(weights)), summed(covered, decays) - summed(held, decays)
        shape = np.broadcast_shapes(np.shape(lacking), np.shape(total))
        share = np.divide(lost * lacking, total**2, out=np.zeros(shape), where=total > 0)
        decayed: Array = made - (share * as_rows(params[name])[start:stop]).astype(np.float32)
        return decayed

    return lazy_arrays(kinds_of(updates), rows)
