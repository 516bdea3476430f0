"""The discount of late updates: FedBuff (Nguyen et al. 2022, Algorithm 1).

Federated Learning with Buffered Asynchronous Aggregation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_server.strategy.aggregation.deltas import ScaledDeltas, as_deltas
from edge_server.strategy.aggregation.updates import GlobalUpdate, TransformContext


@dataclass(frozen=True)
class DiscountStaleness:
    """Scale each update by (1 + s) ** -exponent, where s is the number of aggregations since its model.

    FedBuff adds up the discounted updates of a buffer of K and divides by K, so a late update shortens the
    step. Discounts used as weights would be divided by their sum, and a buffer of equally late updates would
    step as far as a fresh one; so this is a transform, and with the weighting `equal` the mean is the
    paper's. A coordinate's sum is divided by its number of holders. Name it before transforms that move
    channels: the move is no part of the step. 0.5 is the paper's exponent, 0 changes nothing.
    """

    exponent: float = 0.5

    def __post_init__(self) -> None:
        if not self.exponent >= 0:
            raise ValueError("exponent must be at least 0")

    def __call__(self, update: GlobalUpdate, around: TransformContext) -> GlobalUpdate:
        """The update with its delta discounted, if it is late."""
        factor = (1 + update.source.metrics.get("staleness", 0)) ** -self.exponent
        if factor == 1:
            return update
        return replace(update, delta=ScaledDeltas(as_deltas(update.delta, around.channel_map), factor))
