"""Combiners: from K updates and their weights to one change of the global model.

The change is computed on demand, a few rows at a time: neither the updates nor the change need fit into
memory. Robust combiners bound what a faulty or hostile client can do; as clients report their own numbers of
examples, no robust combiner lets a weight decide which values count.
"""

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
    """The weighted mean over the holders of each coordinate; no change where there are none."""
    return mean_over_holders


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
"""What each combiner takes on trust from devices, in words (see the contract in `test_liars.py`)."""
IGNORES_WEIGHTS = frozenset({"median", "trimmed-mean", "krum"})
"""Combiners in which weights do not decide which values count."""
SUMS = frozenset({"mean"})
"""Combiners that are a sum over clients, divided by numbers known beforehand (differential privacy)."""
