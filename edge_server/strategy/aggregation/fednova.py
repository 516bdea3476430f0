"""FedNova: updates normalised by their numbers of steps (Wang et al. 2020, section 4).

Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization. Each update is divided
by |a_k|_1, how often a gradient counts in it, and all are multiplied by tau_eff, the mean of these. With the
weighting `examples` and the combiner `mean` the model moves by tau_eff * sum_k p_k d_k, where
d_k = delta_k / |a_k|_1.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from edge_client.training.objectives.momentum import gradient_mass
from edge_server.strategy.aggregation.deltas import ScaledDeltas, as_deltas
from edge_server.strategy.aggregation.updates import (
    ClientUpdate,
    GlobalUpdate,
    TransformContext,
    is_statistic,
)


@dataclass(frozen=True)
class NormaliseSteps:
    """Scale each update by tau_eff / |a_k|_1; with equal numbers of steps this is FedAvg.

    |a_k|_1 is the number of steps for plain SGD; with local `momentum`, which must be that of `[training]`, a
    gradient counts in later steps, too (`gradient_mass`). p_k is the share of examples, whatever the
    weighting, among the round's updates that took steps; updates without steps do not change. Neither do
    running statistics, which are means and not sums of steps: scaled, a variance could fall below 0.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError("momentum must be at least 0 and below 1")

    def __call__(self, update: GlobalUpdate, around: TransformContext) -> GlobalUpdate:
        """The update scaled as if it had taken tau_eff steps."""
        mass = self.mass(update.source)
        if mass == 0:
            return update
        factor = self.effective_steps(around.sources or (update.source,)) / mass
        delta = ScaledDeltas(as_deltas(update.delta, around.channel_map), factor, exempt=is_statistic)
        return replace(update, delta=delta)

    def mass(self, source: ClientUpdate) -> float:
        """|a_k|_1 of one update; 0 if it reports no steps."""
        return gradient_mass(int(source.metrics.get("steps", 0)), self.momentum)

    def effective_steps(self, sources: Sequence[ClientUpdate]) -> float:
        """tau_eff = sum_k p_k |a_k|_1; clients count equally if none has any example."""
        masses = [(source.examples, self.mass(source)) for source in sources]
        stepped = [(examples, mass) for examples, mass in masses if mass > 0]
        total = sum(examples for examples, _ in stepped)
        if total == 0:
            return sum(mass for _, mass in stepped) / max(1, len(stepped))
        return sum(examples * mass for examples, mass in stepped) / total
