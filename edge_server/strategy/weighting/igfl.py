"""IGFL-S: attention over updates (Huang et al. 2021, Behavior Mimics Distribution, section 4, Algorithm 3).

Equation 11: alpha_ij = softmax over j of psi(q_i, dw_j), and the model moves by the mean over i of
sum_j alpha_ij dw_j; so the weight of client j is the mean over i of alpha_ij. psi is the dot product of whole
update vectors, multiplied here by `scale`: 1 in the paper, less if a large model's dot products give all the
weight to one client (the softmax itself is safe at any size). Numbers of examples do not count: with equal
scores this is FedAvg over the mean of clients, as in the paper's equation 5.

With different sub-models, coordinates that either side lacks add nothing to psi.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.blocks import SUM_NUMBERS, row_blocks
from edge_server.strategy.aggregation.combiners import dot_products
from edge_server.strategy.aggregation.updates import GlobalUpdate
from edge_server.strategy.selection.interface import RoundResult
from edge_server.strategy.weighting.interface import LastUpdates, WeighedUpdates, Weighting, WeightingTraits
from schemas.tensors.arrays import Arrays, kind_of, rows_of

Floats = NDArray[np.float64]


@WeightingTraits(trusts="the larger an update is, within bounds, the more it counts")
@dataclass(frozen=True)
class _Scaled:
    """What all three declare, and their option."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        if not self.scale >= 0:
            raise ValueError("scale must be at least 0")


class IgflSelf(_Scaled, Weighting[None]):
    """Option I, self-attention: every client's update is a query, q_i = dw_i."""

    def weigh(self, state: None, updates: Sequence[GlobalUpdate]) -> Floats:
        return self.weigh_updates(state, updates).weights

    def weigh_updates(self, state: None, updates: Sequence[GlobalUpdate]) -> WeighedUpdates:
        """Weights [K], the mean over the queries i of alpha_ij, with psi [K, K]."""
        psi = dot_products(updates)
        return WeighedUpdates(softmax(self.scale * psi).mean(axis=0), psi)


class IgflGlobal(IgflSelf):
    """Option II, global attention: the plain mean of the updates is the query, q = sum_i dw_i / K."""

    def weigh_updates(self, state: None, updates: Sequence[GlobalUpdate]) -> WeighedUpdates:
        """The same; psi(mean_i dw_i, dw_j) is the mean over i of psi(dw_i, dw_j)."""
        psi = dot_products(updates)
        return WeighedUpdates(softmax(self.scale * psi.mean(axis=0)), psi)


class IgflTime(_Scaled, Weighting[LastUpdates | None]):
    """Option III, time-attention: alpha_j = softmax over j of psi(dw_j of its last round, dw_j).

    Our reading: in the denominator, too, each term has its own client's query; with client j's in all terms,
    as section 4.3 prints it, the weights would not sum to one. A client without an earlier update has dw = 0,
    so psi = 0 (the paper's initial value); in round one all weights are equal. The state
    holds a model per client; no other component needs that much memory.
    """

    def weigh(self, state: LastUpdates | None, updates: Sequence[GlobalUpdate]) -> Floats:
        last = state or {}
        scores = {
            update.source.client: dot_product(last[update.source.client], update.delta)
            for update in updates
            if update.source.client in last
        }
        psi = np.array([scores.get(update.source.client, 0.0) for update in updates])
        return softmax(self.scale * psi)

    def observe(self, state: LastUpdates | None, result: RoundResult) -> LastUpdates:
        kept = {update.source.client: dict(update.delta) for update in result.updates}
        return {**(state or {}), **kept}


def dot_product(one: Arrays, other: Arrays) -> float:
    """Of two whole update vectors, in double precision."""
    total = 0.0
    for name in other:
        for start, stop in row_blocks(kind_of(other, name)[1], SUM_NUMBERS):
            mine, its = rows_of(one, name, start, stop), rows_of(other, name, start, stop)
            total += float(np.vdot(mine.astype(np.float64), its))
    return total


def softmax(scores: Floats) -> Floats:
    """Over the last axis; the largest score is taken off first, so none is too large for exp."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))
