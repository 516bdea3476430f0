"""The federation file: TOML in kebab-case, validated key by key.

A file names a recipe or states its components; its settings override the recipe, and `key=value` arguments
override both.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import tomli_w
from pydantic import model_validator

from edge_server.config import run_sections
from edge_server.config.object_store import HomeAssistantSettings, ObjectStoreSettings, SparkplugSettings
from edge_server.config.privacy import PrivacySettings
from edge_server.config.sections import DataSettings, ModelSettings, RunTrainingSettings, TierSettings
from edge_server.strategy.components import make_strategy
from edge_server.strategy.data_statistics import ROUNDS, rough_request
from edge_server.strategy.pruning.trained_part import ALL
from edge_server.strategy.selection.policies import constant
from edge_server.strategy.strategy import Strategy
from schemas.base import Settings, kebab
from schemas.statistics import StatisticsRequest
from schemas.strategy import Component, StrategySpec

DEFAULT_UPLINK = (Component(name="int8", options={"levels": 7}), Component(name="zstd"))
DEFAULT_DOWNLINK = (Component(name="fp16"),)  # the default codecs (figures: tests/benchmarks/bytes.py)


class Config(Settings):
    """A whole federation file."""

    recipe: run_sections.RecipeInfo | None = None
    federation: run_sections.FederationSettings = run_sections.FederationSettings()
    clients: run_sections.ClientSettings = run_sections.ClientSettings()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    training: RunTrainingSettings = RunTrainingSettings()
    tiers: TierSettings = TierSettings()
    simulation: run_sections.SimulationSettings = run_sections.SimulationSettings()
    privacy: PrivacySettings = PrivacySettings()
    firewall: run_sections.FirewallSettings = run_sections.FirewallSettings()
    object_store: ObjectStoreSettings = ObjectStoreSettings()
    home_assistant: HomeAssistantSettings = HomeAssistantSettings()
    sparkplug: SparkplugSettings = SparkplugSettings()
    strategy: StrategySpec = StrategySpec()

    @model_validator(mode="after")
    def _frozen_networks_stay_whole(self) -> "Config":
        """Where every tier freezes layers, numbers in `[tiers] ratios` cut nothing.

        What a board saves in the trained layers alone is little, and costs more accuracy than in a network
        that is trained as a whole (deploy/docs/explanation/trained-parts.md).
        """
        if not any(ALL in items for items in self.trained_parts):
            ratios = tuple(r if isinstance(r, Mapping) else 0.0 for r in self.tiers.ratios)
            self.__dict__["tiers"] = self.tiers.model_copy(update={"ratios": ratios})
        return self

    @property
    def num_classes(self) -> int | None:
        return self.model.num_classes or (len(self.data.classes) if self.data.classes else None)

    @property
    def trained_parts(self) -> tuple[tuple[str, ...], ...]:
        """What devices train, tier by tier, or one statement for all tiers."""
        stated = self.tiers.train or (self.training.train,)
        return tuple((each,) if isinstance(each, str) else each for each in stated)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The rank of adapters, tier by tier, or one for all tiers."""
        return self.tiers.ranks or (self.training.rank,)

    def algorithm(self) -> StrategySpec:
        """The strategy, with the share of clients per round from `[clients]` if it has no schedule."""
        constant = Component(name="constant", options={"value": self.clients.fraction})
        return self.strategy.model_copy(update={"fraction": self.strategy.fraction or constant})

    def with_codecs(self) -> "Config":
        """The configuration with explicit codecs; masked updates have none, as noise cannot be compressed."""
        up, down = self.strategy.uplink, self.strategy.downlink
        usual_up = () if self.privacy.secure_aggregation else DEFAULT_UPLINK
        up, down = usual_up if up is None else up, DEFAULT_DOWNLINK if down is None else down
        stated = {"uplink": up, "downlink": down}
        return self.model_copy(update={"strategy": self.strategy.model_copy(update=stated)})

    def make_strategy(self) -> Strategy:
        """The strategy of this run; `ConfigError` for the first component that cannot be made."""
        run = self.federation
        spec = self._bound_examples(self.algorithm())
        made = make_strategy(spec, self.tiers.ratios, rounds=run.last_round, seed=run.seed)
        # What devices measure cannot be masked: statistics are then averaged like weights.
        measuring = () if self.privacy.secure_aggregation else made.measuring
        privacy = self.privacy.gaussian
        if privacy is not None and made.summing and made.sum_rounds is None:
            privacy = replace(privacy, unit="example")
        made = replace(made, privacy=privacy, claims=self.firewall.claims, measuring=measuring)
        if run.when != "at-once":
            made = replace(made, measure_every=run.rounds_per_opening)
        if not run.trains:
            made = replace(made, trains=False)
        if self.privacy.gaussian is not None or self.privacy.secure_aggregation:
            # Clipped sums with noise, and masked sums, have arithmetic of their own.
            made = replace(made, summed=False)
        # Statistics are those of the whole fleet.
        everyone = replace(made, fraction=constant(), measuring=(), own=None)
        return replace(everyone, trains=False, statistics=self._first_request()) if run.statistics else made

    def _bound_examples(self, spec: StrategySpec) -> StrategySpec:
        """The strategy with the clip of `[privacy]` for what sums over examples, if these sums get noise."""
        clip = self.privacy.clip
        if self.privacy.gaussian is None or isinstance(clip, str):
            return spec
        from edge_client.training.objectives.registry import OBJECTIVES
        from edge_server.strategy.groups.registry import GROUPS

        def bound(part: Component, *, bounds: bool) -> Component:
            return part.model_copy(update={"options": {"clip": clip, **part.options}}) if bounds else part

        objectives = tuple(
            bound(part, bounds=getattr(OBJECTIVES.get(part.name), "bounds_examples", False))
            for part in spec.objectives
        )
        groups = tuple(bound(part, bounds=GROUPS.traits(part.name).bounds_examples) for part in spec.groups)
        return spec.model_copy(update={"objectives": objectives, "groups": groups})

    def _first_request(self) -> StatisticsRequest:
        """The first request for statistics: masks need ranges, which are stated roughly."""
        rough = self.data.statistics
        if rough is None or not self.privacy.secure_aggregation:
            return StatisticsRequest()
        features = tuple(zip(rough.mean, rough.std, strict=True))
        return rough_request(features, tuple(zip(rough.target_mean, rough.target_std, strict=True)))

    def for_statistics(self) -> "Config":
        """The configuration of a pass of statistics: its rounds train nothing."""
        run = {"statistics": True, "rounds": ROUNDS, "when": "at-once", "deliver": "none", "deliver_every": 0}
        sections: dict[str, dict[str, Any]] = {
            "federation": run,
            "clients": {"mode": "rounds", "over_select": 1.0},
            "firewall": {"canary": None},
            "model": {"from_": None},
        }
        changed = {name: getattr(self, name).model_copy(update=keys) for name, keys in sections.items()}
        return self.model_copy(update=changed)

    def to_toml(self) -> str:
        """The resolved file with all defaults."""
        table = self.model_dump(mode="json", by_alias=True, exclude_none=True)
        return tomli_w.dumps(_components_as_written(table))


def _components_as_written(value: Any) -> Any:
    """A component as users write it: its name, or a table of its name and options."""
    if isinstance(value, dict) and value.keys() == {"name", "options"}:
        options = {kebab(key): option for key, option in value["options"].items()}
        return {"name": value["name"], **options} if options else value["name"]
    if isinstance(value, dict):
        return {key: _components_as_written(item) for key, item in value.items()}
    return [_components_as_written(item) for item in value] if isinstance(value, list) else value
