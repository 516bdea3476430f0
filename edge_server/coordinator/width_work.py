"""How much devices compute that train smaller widths in some of their steps."""

from edge_server.coordinator.model_state import ModelState
from edge_server.strategy.groups.equal_work import own_probability, step_share
from edge_server.strategy.groups.widths import smaller_tiers
from edge_server.strategy.planning import sends_widths
from schemas.submodel import SubModelSpec


class WidthWork:
    """Counts the work of a run's sub-models: each shape once, and each sub-model's share once per round."""

    def __init__(self, model: ModelState) -> None:
        self._model = model
        self._own = own_probability(model.context.strategy.objectives)
        self._macs: dict[tuple[int, ...], int] = {}
        self._round, self._shares = 0, dict[str, float]()

    def macs(self, spec: SubModelSpec) -> int:
        groups = self._model.context.channel_map.groups
        counts = tuple(spec.count(name, group.channels) for name, group in groups.items())
        if counts not in self._macs:
            self._macs[counts] = self._model.network.macs(spec)
        return self._macs[counts]

    def share(self, spec: SubModelSpec) -> float:
        """Multiply-accumulates of a mean step over those of a step that trains all of the sub-model."""
        model = self._model
        if self._own is None or not sends_widths(model.context.strategy, model.state):
            return 1.0
        if self._round != model.state.round:
            self._round, self._shares = model.state.round, {}
        key = spec.model_dump_json()
        if key not in self._shares:
            smaller = smaller_tiers(spec, model.context.channel_map, model.tier_specs().values())
            macs = [self.macs(tier) for tier in smaller]
            self._shares[key] = step_share(self._own, self.macs(spec), macs)
        return self._shares[key]

    def planned_share(self, spec: SubModelSpec) -> float:
        """That share where devices make up for it with further epochs, else 1."""
        return self.share(spec) if self._model.context.config.tiers.equal_work else 1.0

    def planned_share_of_tier(self, tier: int) -> float:
        """As `planned_share`, of a tier's sub-model."""
        return self.planned_share(self._model.tier_spec(self._model.context.config.tiers.ratios[tier - 1]))
