"""The strategy of a run: a frozen record of components, and the state that it carries from round to round.

`planning` chooses devices and cuts their sub-models; `closing` turns the updates of a round into the next
model. Both are pure functions over these two. With the full sub-model for every device this is FedAvg.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from edge_client.compression.downlink import DownlinkCodecs
from edge_client.models.registry import ModelEntry
from edge_client.pruning.channel_selection import Ratio
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore, store_arrays
from edge_server.strategy.aggregation.means import Combiner
from edge_server.strategy.aggregation.transforms import Transform
from edge_server.strategy.data_statistics import STATISTICS, next_request
from edge_server.strategy.explanations import Observed
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.optimizer.optimizers import ServerOptimizer
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.pruning.interface import Cut, Known, Pruner
from edge_server.strategy.pruning.own_parts import OwnPart
from edge_server.strategy.pruning.trained_part import ALL_TRAINED, TrainedParts
from edge_server.strategy.selection.interface import LearnedRatios, RatioPolicy, Scores, SelectionPolicy
from edge_server.strategy.selection.policies import Schedule
from edge_server.strategy.weighting.claims import Claims
from edge_server.strategy.weighting.interface import AnyWeighting, WeightingState
from schemas.statistics import StatisticsRequest
from schemas.strategy import Component
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, Groups


@dataclass(frozen=True)
class Strategy:
    """One component per concept (DESIGN.md section 4).

    `own_order`: a transform moves each client's channels by the client's own ranking. In rounds that are
    multiples of `measure_every` devices train nothing: they send what the objectives `measuring` measure of
    the model, where there are any. In the first `sum_rounds` rounds (None: in all) they train nothing
    either, and send what the objectives `summing` sum. The parts of `own` stay on devices. Without `trains`
    they measure the model and send nothing of it, or statistics of their data, of which `statistics` is the
    first request.
    `summed`: no component needs more of the updates than their sum, which is exact.
    `tiers`: the tiers' ratios, where devices rank channels only to cut these.
    """

    fraction: Schedule
    local_epochs: Schedule | None
    selection: SelectionPolicy
    ratio: RatioPolicy
    pruner: Pruner
    objectives: tuple[Component, ...]
    groups: tuple[GroupRule, ...]
    transforms: tuple[Transform, ...]
    weighting: AnyWeighting
    combiner: Combiner
    server_optimizer: ServerOptimizer
    privacy: dp.Gaussian | None = None
    own_order: bool = False
    claims: Claims = field(default_factory=Claims)
    uplink: tuple[Component, ...] = ()
    downlink: DownlinkCodecs = field(default_factory=DownlinkCodecs)
    measuring: tuple[Component, ...] = ()
    measure_every: int = 1
    summing: tuple[Component, ...] = ()
    sum_rounds: int | None = None
    own: OwnPart | None = None
    trains: bool = True
    summed: bool = False
    tiers: tuple[Ratio, ...] = ()
    statistics: StatisticsRequest | None = None

    @property
    def withholds(self) -> bool:
        """Whether devices keep layers that the server never gets."""
        return self.own is not None and self.own.own_model is None

    def is_summed(self, number: int) -> bool:
        """Whether devices send sums in this round, and train nothing."""
        return bool(self.summing) and (self.sum_rounds is None or number <= self.sum_rounds)

    def count(self, round_number: int, clients: int) -> int:
        """Number of `clients` that a round takes, at least one; 0.3 of 10 are 3 despite rounding errors."""
        return min(clients, max(1, math.ceil(self.fraction(round_number) * clients - 1e-9)))


@dataclass(frozen=True)
class State:
    """Everything that a run carries from round to round; `round` counts the closed rounds.

    `ordered`: clients' channels were moved by their own rankings, so that the global model's channels are in
    order. `pruning`: what the pruner has learned, arrays by name. `groups` are the
    server's parameter groups next to the model. `clients` lists every device ever seen, as
    {name: (tier, examples)}. `paces` are the training speeds of devices that state no tier
    (`selection.tier_evidence`). `observed` is what the last round adds to the run's history.
    `selection`, `ratio`, `weighting`, `server_optimizer` and `privacy` are the states of those components;
    that of `privacy` includes the secret of the noise. `exact`: sums of updates are.
    """

    params: Arrays
    round: int = 0
    ordered: bool = False
    pruning: Known = field(default_factory=dict)
    groups: Groups = field(default_factory=dict)
    clients: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    selection: Scores | None = None
    ratio: LearnedRatios | None = None
    weighting: WeightingState = None
    server_optimizer: Groups = field(default_factory=dict)
    observed: Observed = field(default_factory=lambda: Observed())
    privacy: dp.PrivacyState | None = None
    paces: Mapping[str, float] | None = None
    exact: bool = False


@dataclass(frozen=True)
class Assignment:
    """A selected device's sub-model, pruning ratio and, where a schedule sets them, local epochs."""

    cut: Cut
    ratio: float
    local_epochs: int | None = None


@dataclass(frozen=True)
class Plan:
    """The assignments of a round, by device, and how many updates close it."""

    assignments: Mapping[str, Assignment]
    needed: int


@dataclass(frozen=True)
class Network:
    """The model as the strategy sees it: its registry entry, where its channels are, what devices train.

    `order` are the names of the parameters in the order in which the network registers them; the channel map
    that all readers share has them by name.
    """

    entry: ModelEntry
    channel_map: ChannelMap
    parts: TrainedParts = ALL_TRAINED
    order: tuple[str, ...] = ()

    @cached_property
    def registered_map(self) -> ChannelMap:
        """The channel map with its parameters in the network's order, by which layers are first and last."""
        return self.channel_map.of_parameters(self.order) if self.order else self.channel_map


def start_state(strategy: Strategy, params: Arrays, *, keep: NewArrayStore = MemoryArrays) -> State:
    """The state before round one; `keep` as in `close`."""
    groups = {rule.name: store_arrays(rule.start(params), keep) for rule in strategy.groups}
    return State(params, groups=groups, exact=strategy.summed)


def statistics_request(strategy: Strategy, state: State) -> StatisticsRequest | None:
    """What devices measure of their data in the next round; None in a run that trains or measures models."""
    first = strategy.statistics
    return None if first is None else next_request(state.observed.get(STATISTICS), first)


def known_examples(state: State) -> dict[str, int]:
    """Training examples of every client ever seen, as counted at its last planning."""
    return {name: examples for name, (_, examples) in state.clients.items()}
