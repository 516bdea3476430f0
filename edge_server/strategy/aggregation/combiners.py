"""Combiners: from K updates and their weights to one change of the global model.

The change is computed on demand, a few rows at a time: neither the updates nor the change need fit into
memory. Robust combiners bound what a faulty or hostile client can do; as clients report their own numbers of
examples, no robust combiner lets a weight decide which values count.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.system.plugins import TraitRegistry
from edge_server.strategy.aggregation.means import Combiner, mean_over_holders, mean_over_overlap
from edge_server.strategy.aggregation.pairwise_products import squared_distances
from edge_server.strategy.aggregation.trimmed import median, trimmed_mean
from edge_server.strategy.aggregation.updates import ROBUST, CombinerTraits, GlobalUpdate
from schemas.tensors.blobs import Arrays

# The combiner `krum`: Blanchard et al. 2017, Machine Learning with Adversaries, section 4.


@ROBUST
def krum(*, byzantine: float = 0.2, keep: int = 1) -> Combiner:
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
    return np.asarray(others[:, : max(1, count - hostile - 2)].sum(axis=1))


_FULL_WEIGHT = "an update within bounds counts with its full weight, whichever way it points"


@CombinerTraits(trusts=_FULL_WEIGHT, is_sum=True)
def mean() -> Combiner:
    """The weighted mean over the holders of each coordinate; no change where there are none."""
    return mean_over_holders


@CombinerTraits(trusts=_FULL_WEIGHT)
def overlap_mean(*, elsewhere: str = "keep") -> Combiner:
    """The weighted mean of the coordinates that all clients of the round hold.

    Hermes (Li et al. 2021) averages the intersection of its sub-networks and leaves the rest to each device
    (objective `personal`). Chosen here: the intersection is that of the round's clients, not of pairs. The
    method has no global model outside the intersection; here tests and new devices need values there.
    `keep` leaves them unchanged, which is the method literally; `holders` takes the mean over the holders.
    With nested tiers, `keep` never trains the global model beyond the weakest tier; with `holders` it is the
    model of `mean`, and only devices keep something personal.
    """
    if elsewhere not in ("keep", "holders"):
        raise ValueError(f"elsewhere is 'keep' or 'holders', not '{elsewhere}'")
    return mean_over_overlap if elsewhere == "keep" else mean_over_holders


COMBINERS: TraitRegistry[Callable[..., Combiner], CombinerTraits] = TraitRegistry(
    "combiner",
    CombinerTraits,
    {
        "mean": mean,
        "overlap-mean": overlap_mean,
        "median": median,
        "trimmed-mean": trimmed_mean,
        "krum": krum,
    },
)
