"""The interface of a pruner: which channels a device's sub-model keeps, given a ratio per channel group.

A pruner is called once per device and round. It returns the sub-model to send and, if the device itself
chooses channels (ATTENDING's first round), what it needs for that.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from edge_client.pruning.channel_selection import best_spec, prefix_spec
from edge_client.system.plugins import Traits
from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.statistics import StatisticsRequest
from schemas.strategy import Adapters, Component, PersonalPruning
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, Arrays

SCORES = "attention"  # the group in which a device sends the scores of its channels, {layer: [C]}


@dataclass(frozen=True)
class Cut:
    """A device's sub-model for one round.

    `personal`: the device prunes it further, before or after training; without `train` it only evaluates its
    data.
    `trained`: the arrays that the device trains (None: all); `returned`: those that it sends back, each by
    its name or its layer's (None: all); `own`: the layers that it keeps; `own_model`: the objective of a
    second model, which it keeps. `adapters`: those of the trained arrays whose change has a low rank.
    With `statistics` the device gets no model at all, and measures its data.
    """

    spec: SubModelSpec
    personal: PersonalPruning | None = None
    objectives: tuple[Component, ...] = ()
    train: bool = True
    trained: tuple[str, ...] | None = None
    adapters: Adapters | None = None
    returned: tuple[str, ...] | None = None
    own: tuple[str, ...] = ()
    own_model: Component | None = None
    statistics: StatisticsRequest | None = None

    @property
    def scored_by(self) -> Component | None:
        """The objective by whose scores the device prunes before it trains, if it does."""
        return None if self.personal is None else self.personal.scored_by


Ratios = Mapping[str, float]
Known = Mapping[str, AnyArray]  # what a pruner has learned, as arrays by name


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a pruner may use besides the ratios.

    `ordered`: the global model's channels were put in the order of their ranks (`attention-matching`).
    `known`: what the pruner has learned, see `Pruner.observe`. `params`: the global model. `seed` is the
    round's, `round` its number from 1 (0: no round), `client` the device that gets the sub-model.
    """

    ordered: bool = False
    known: Known = field(default_factory=dict)
    params: Arrays = field(default_factory=dict)
    seed: int = 0
    round: int = 0
    client: str = ""


@dataclass(frozen=True)
class PrunerTraits(Traits):
    """Which channels a pruner gives to devices.

    `is_prefix`: all devices share the leading ones; `ranks_channels`: devices rank them in their first round
    and send the scores; `is_new_each_round`: a device has others in every round; `is_per_client`: devices of
    one ratio have different parts of the network.
    """

    is_prefix: bool = False
    ranks_channels: bool = False
    is_new_each_round: bool = False
    is_per_client: bool = False


class Pruner(Protocol):
    """Decides the sub-model of one device."""

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut: ...

    def tier(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> SubModelSpec:
        """The sub-model with which a tier is tested and that it gets at the end; by default the prefix."""
        return prefix_spec(ratios, channel_map)

    def is_ranked(self, evidence: Evidence) -> bool:
        """Whether the channels that tiers keep are decided; a device trains smaller tiers only then."""
        return True

    def observe(self, known: Known, updates: Sequence[ClientUpdate], channel_map: ChannelMap) -> Known:
        """What the pruner knows after a round, as arrays by name; {} at first, and by default always."""
        return known


def random_spec(ratios: Ratios, channel_map: ChannelMap, seed: int) -> SubModelSpec:
    """The first channels of a random order per group: with one seed, smaller specs lie within larger."""
    random = np.random.default_rng(seed)
    drawn = {name: random.random(channel_map.groups[name].channels) for name in sorted(ratios)}
    return best_spec(drawn, ratios, channel_map)
