"""Combiners: from K updates and their weights to one change of the global model.

What they give is made when it is asked for, a few rows at a time: neither the updates nor the change need be
in memory whole. The robust ones bound what a faulty or hostile client can do; a client states its own number
of examples, so none of them lets a weight decide which values count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.system.plugins import Registry
from edge_server.strategy.aggregation.krum import krum
from edge_server.strategy.aggregation.means import mean_over_holders, mean_over_overlap
from edge_server.strategy.aggregation.trimmed import median, trimmed_mean
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.blobs import Arrays

Combiner = Callable[[Sequence[GlobalUpdate], NDArray[np.float64]], Arrays]
"""`(updates, weights [K]) -> change of each parameter, of its full shape P`."""


def mean() -> Combiner:
    """The weighted mean over the clients that hold a coordinate; no change where nobody does."""
    return mean_over_holders


def overlap_mean(*, elsewhere: str = "keep") -> Combiner:
    """The weighted mean where all clients of the round hold a coordinate.

    Hermes (Li et al. 2021) averages the intersection of its sub-networks and leaves the rest to each device
    (objective `personal`). Chosen here: the intersection is that of the round's clients, not of pairs.
    The method has no global model outside it; one that is tested and handed to newcomers needs values
    there: `keep` leaves them as they were, which is the method to the letter, and `holders` takes the mean
    over those that hold a coordinate. Where tiers nest, the global model would never learn anything beyond
    the weakest under `keep`; under `holders` it is that of `mean`, and only devices keep something personal.
    """
    if elsewhere not in ("keep", "holders"):
        raise ValueError(f"elsewhere is 'keep' or 'holders', not '{elsewhere}'")
    return mean_over_overlap if elsewhere == "keep" else mean_over_holders


COMBINERS: Registry[Callable[..., Combiner]] = Registry(
    "combiner",
    {
        "mean": mean,
        "overlap-mean": overlap_mean,
        "median": median,
        "trimmed-mean": trimmed_mean,
        "krum": krum,
    },
)
TRUSTS = {
    "mean": "an update within bounds counts with its full weight, whichever way it points",
    "overlap-mean": "an update within bounds counts with its full weight, whichever way it points",
}
"""What no bound can check and devices are trusted with, in words (see the contract in `test_liars.py`)."""
IGNORES_WEIGHTS = frozenset({"median", "trimmed-mean", "krum"})
"""Those that do not let weights decide which values count."""
SUMS = frozenset({"mean"})
"""Those that are a sum over clients, divided by what is known beforehand (differential privacy)."""
