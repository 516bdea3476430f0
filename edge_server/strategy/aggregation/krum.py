"""The combiner `krum`: Blanchard et al. 2017, Machine Learning with Adversaries, section 4."""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.means import mean_over_holders
from edge_server.strategy.aggregation.pairwise_products import squared_distances
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.blobs import Arrays


def krum(
    *, byzantine: float = 0.2, keep: int = 1
) -> Callable[[Sequence[GlobalUpdate], NDArray[np.float64]], Arrays]:
    """The weighted mean of the `keep` updates closest to their neighbours (1: Krum, more: multi-Krum).

    With `keep` = 0 all but f are kept. `byzantine` is f, the number of clients that may be hostile: a share
    of the round if below 1, else a count. The paper's guarantee needs more than 2 f + 2 clients; a smaller
    round is combined without it. Weights apply among the kept updates only, equally if all are 0.
    Coordinates that no kept client holds do not change: with different sub-models keep several.
    """
    if byzantine < 0 or (byzantine >= 1 and byzantine != int(byzantine)):
        raise ValueError("byzantine must be a share below 1 or a whole number of clients")
    if keep < 0:
        raise ValueError("keep must be at least 0")

    def combine(updates: Sequence[GlobalUpdate], weights: NDArray[np.float64]) -> Arrays:
        hostile = int(byzantine if byzantine >= 1 else math.floor(byzantine * len(updates) + 1e-9))
        most = keep or max(1, len(updates) - hostile)
        kept = np.sort(np.argsort(krum_scores(updates, hostile), kind="stable")[:most])
        shares = weights[kept] if weights[kept].any() else np.ones(len(kept))
        return mean_over_holders([updates[index] for index in kept], shares)

    return combine


def krum_scores(updates: Sequence[GlobalUpdate], hostile: int) -> NDArray[np.float64]:
    """Per client [K], the sum of squared distances to its K - f - 2 nearest neighbours (at least one)."""
    count = len(updates)
    squared = squared_distances(updates)
    np.fill_diagonal(squared, np.inf)
    others = np.sort(squared, axis=1)[:, : count - 1]
    scores: NDArray[np.float64] = others[:, : max(1, count - hostile - 2)].sum(axis=1)
    return scores
