"""The strategy of a run: a frozen record of components, the run's state, and two pure functions over both.

`plan` chooses devices and cuts their sub-models; `close` turns the updates of a round into the next model.
With the full sub-model for every device this is FedAvg.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edge_client.compression.downlink import DownlinkCodecs
from edge_client.models.registry import ModelEntry
from edge_client.pruning.channel_selection import Ratio, group_ratios, mean_ratio
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore, store_arrays
from edge_server.strategy.aggregation.combiners import Combiner
from edge_server.strategy.aggregation.means import exact_mean
from edge_server.strategy.aggregation.partial_sums import PartialSum
from edge_server.strategy.aggregation.transforms import Transform, norm_ratios, transform_updates
from edge_server.strategy.aggregation.updates import ClientUpdate, RoundUpdates, is_statistic, sources_of
from edge_server.strategy.data_statistics import STATISTICS, next_request, pooled
from edge_server.strategy.explanations import Observed
from edge_server.strategy.groups.rule import GroupRule, Tiers, cut_groups, fold_groups, own_params
from edge_server.strategy.optimizer.optimizers import ServerOptimizer
from edge_server.strategy.optimizer.step import add_change, apply_optimizer, clamp_variances
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.pruning.interface import SCORES, Cut, Evidence, Known, Pruner
from edge_server.strategy.pruning.own_parts import OwnPart
from edge_server.strategy.selection.interface import (
    Client,
    LearnedRatios,
    RatioPolicy,
    RoundResult,
    Scores,
    SelectionPolicy,
)
from edge_server.strategy.selection.schedules import Schedule
from edge_server.strategy.weighting.claims import Claims
from edge_server.strategy.weighting.interface import AnyWeighting, WeighedUpdates, WeightingState, similarity
from schemas.statistics import StatisticsRequest
from schemas.strategy import Component
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays, Groups


@dataclass(frozen=True)
class Strategy:
    """One component per concept (DESIGN.md section 4).

    `own_order`: a transform moves each client's channels by the client's own ranking. In rounds that are
    multiples of `measure_every` devices train nothing: they send what the objectives `measuring` measure of
    the model, where there are any. The parts of `own` stay on devices. Without `trains` devices measure the
    model and send nothing of it, or statistics of their data, of which `statistics` is the first request.
    `summed`: no component needs more of the updates than their sum, which is exact.
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
    own: OwnPart | None = None
    trains: bool = True
    summed: bool = False
    statistics: StatisticsRequest | None = None

    @property
    def withholds(self) -> bool:
        """Whether devices keep layers that the server never gets."""
        return self.own is not None and self.own.own_model is None

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
    that of `privacy` includes the secret of the noise. `exact`: sums of updates are; runs that were begun by
    earlier versions go on in doubles.
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
    """The model as the strategy sees it: its registry entry and where its channels are."""

    entry: ModelEntry
    channel_map: ChannelMap


def start(strategy: Strategy, params: Arrays, *, keep: NewArrayStore = MemoryArrays) -> State:
    """The state before round one; `keep` as in `close`."""
    groups = {rule.name: store_arrays(rule.start(params), keep) for rule in strategy.groups}
    return State(params, groups=groups, exact=strategy.summed)


def plan(
    strategy: Strategy,
    state: State,
    clients: Sequence[Client],
    network: Network,
    rng: np.random.Generator,
    *,
    over_select: float = 1.0,
    wanted: int | None = None,
) -> Plan:
    """Choose devices among `clients` for the next round, and cut a sub-model for each of them.

    `over_select` multiplies the number of devices asked. `wanted` overrides the number that the fraction
    gives (buffered rounds, where every free device trains).
    """
    number = state.round + 1
    count = strategy.count(number, len(clients)) if wanted is None else min(wanted, len(clients))
    asked = min(len(clients), math.ceil(count * over_select - 1e-9))
    chosen = set(strategy.selection.act(state.selection, clients, asked, rng))
    selected = [client for client in clients if client.name in chosen]
    ratios = strategy.ratio.act(state.ratio, selected, number, rng)
    epochs = round(strategy.local_epochs(number)) if strategy.local_epochs else None
    seed = int(rng.integers(2**32))
    assignments = {
        client.name: Assignment(
            cut(strategy, state, network, ratios[client.name], seed=seed, client=client.name),
            mean_ratio(ratios[client.name]),
            epochs,
        )
        for client in selected
    }
    return Plan(assignments, needed=count)


def cut(
    strategy: Strategy, state: State, network: Network, ratio: Ratio, *, seed: int = 0, client: str = ""
) -> Cut:
    """The sub-model of a device with pruning ratio `ratio`; `seed` is the round's."""
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    evidence = Evidence(state.ordered, state.pruning, state.params, seed, state.round + 1, client)
    if (request := statistics_request(strategy, state)) is not None:
        return Cut(SubModelSpec(), train=False, returned=(), statistics=request)
    if not strategy.trains:
        tier = strategy.pruner.tier(by_group, network.channel_map, evidence)
        return Cut(tier, train=False, returned=())
    made = strategy.pruner.cut(by_group, network.channel_map, evidence)
    own = strategy.own.layers(network.channel_map) if strategy.own and strategy.withholds else ()
    if made.personal is None and _only_measures(strategy, evidence.round, network.channel_map):
        return Cut(made.spec, objectives=strategy.measuring, train=False, returned=(), own=own)
    returned = _without(own, made.returned, network.channel_map) if own else made.returned
    objectives = strategy.objectives + made.objectives
    second = strategy.own.own_model if strategy.own is not None else None
    return replace(made, objectives=objectives, returned=returned, own=own, own_model=second)


def statistics_request(strategy: Strategy, state: State) -> StatisticsRequest | None:
    """What devices measure of their data in the next round; None in a run that trains or measures models."""
    first = strategy.statistics
    return None if first is None else next_request(state.observed.get(STATISTICS), first)


def _without(
    own: Collection[str], returned: Sequence[str] | None, channel_map: ChannelMap
) -> tuple[str, ...]:
    """The layers to send back, without those that devices keep."""
    layers = dict.fromkeys(name.rpartition(".")[0] for name in channel_map.parameters)
    return tuple(layer for layer in (layers if returned is None else returned) if layer not in own)


def _only_measures(strategy: Strategy, number: int, channel_map: ChannelMap) -> bool:
    """Whether devices train nothing in round `number`; without statistics there is nothing to measure."""
    return (
        bool(strategy.measuring)
        and number % strategy.measure_every == 0
        and any(map(is_statistic, channel_map.parameters))
    )


def tier_spec(strategy: Strategy, state: State, network: Network, ratio: Ratio) -> SubModelSpec:
    """The sub-model of the current global model for a tier of this ratio."""
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    evidence = Evidence(state.ordered, state.pruning, state.params)
    return strategy.pruner.tier(by_group, network.channel_map, evidence)


def params_of(strategy: Strategy, state: State, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
    """The full arrays that a sub-model is cut from: the global model's, or the sub-model's own."""
    return own_params(strategy.groups, state.params, state.groups, spec, channel_map)


def downlink_groups(
    strategy: Strategy,
    state: State,
    spec: SubModelSpec,
    channel_map: ChannelMap,
    tiers: Tiers = tuple,
) -> Groups:
    """What a device with this sub-model receives: its part of the model and of every downlink group."""
    ranked = strategy.pruner.is_ranked(Evidence(state.ordered, state.pruning, state.params))
    return cut_groups(
        strategy.groups, state.params, state.groups, spec, channel_map, tiers if ranked else tuple
    )


def close(
    strategy: Strategy,
    state: State,
    updates: Sequence[ClientUpdate],
    channel_map: ChannelMap,
    *,
    clients: Sequence[Client] = (),
    parts: Sequence[PartialSum] = (),
    keep: NewArrayStore = MemoryArrays,
) -> State:
    """Aggregate the updates of a round, in any order; `clients` are those that it could choose from.

    `parts` are sums of those updates whose arrays are not here (`whole_weights`). `keep` makes the stores for
    groups and for the optimizer's state; the model is always in memory.
    """
    if (request := statistics_request(strategy, state)) is not None:
        return _close_statistics(strategy, state, updates, request)
    updates, _ = strategy.claims.believed(updates, known_examples(state))
    matched = transform_updates(
        strategy.transforms, updates, state.params, channel_map, ordered=state.ordered
    )
    weighed, change, privacy = _combine(strategy, state, matched, channel_map, parts)
    sources = sources_of(matched)
    ranks = strategy.own_order and not state.ordered and any(map(_has_scores, sources))
    params, optimizer = _apply_change(strategy, state, sources, change, ranks=ranks, keep=keep)
    observed = _observed_of_updates(sources, weighed)
    if ranks:
        observed["norm_ratios"] = norm_ratios(matched, weighed.weights, state.params, params)
    number, weights = state.round + 1, observed["weights"]
    result = RoundResult(number, matched, weights, state.params, params, clients, channel_map, keep)
    groups, result = fold_groups(strategy.groups, state.groups, result)
    after = replace(
        _learned(strategy, state, result),
        params=result.after,
        round=number,
        ordered=state.ordered or ranks,
        groups=groups,
        server_optimizer=optimizer,
        privacy=privacy,
    )
    return replace(after, observed={**observed, **_observed_of_state(strategy, state, after)})


def _close_statistics(
    strategy: Strategy, state: State, updates: Sequence[ClientUpdate], request: StatisticsRequest
) -> State:
    """Close a round in which devices measured their data; claims limit their shares of the examples."""
    sent = {update.client: update.examples for update in updates}
    believed, _ = strategy.claims.believed(updates, known_examples(state))
    shares = {update.client: update.examples / sent[update.client] for update in believed}
    found = pooled(believed, request, shares)
    return replace(state, round=state.round + 1, observed={STATISTICS: found})


def _learned(strategy: Strategy, state: State, result: RoundResult) -> State:
    """The state with what pruner, selection, ratio and weighting learn from a round."""
    pruning = state.pruning
    if not strategy.own_order:
        pruning = strategy.pruner.observe(pruning, sources_of(result.updates), result.channel_map)
    return replace(
        state,
        pruning=pruning,
        selection=strategy.selection.observe(state.selection, result),
        ratio=strategy.ratio.observe(state.ratio, result),
        weighting=strategy.weighting.observe(state.weighting, result),
    )


def whole_weights(strategy: Strategy, state: State, updates: Sequence[ClientUpdate]) -> dict[str, int] | None:
    """The whole weights of updates that may be added in parts, by client; None where each is needed."""
    if not state.exact or statistics_request(strategy, state) is not None:
        return None
    believed, _ = strategy.claims.believed(updates, known_examples(state))
    ordered = sorted(believed, key=lambda update: update.client)
    counts = strategy.weighting.counts(ordered)
    if counts is None:
        return None
    return {update.client: count for update, count in zip(ordered, counts, strict=True)}


def _observed_of_updates(sources: Sequence[ClientUpdate], weighed: WeighedUpdates) -> Observed:
    """The weight of each client, and the similarity of their updates where it was measured."""
    names = [source.client for source in sources]
    weights = {name: float(weight) for name, weight in zip(names, weighed.weights, strict=True)}
    found: Observed = {"weights": weights}
    if weighed.products is not None:
        found["similarity"] = similarity(weighed.products, names)
    return found


def _observed_of_state(strategy: Strategy, before: State, after: State) -> Observed:
    """The privacy that the round has spent, and what selection and ratio say of themselves."""
    found: Observed = {
        **strategy.selection.observed(after.selection),
        **strategy.ratio.observed(after.ratio),
    }
    if strategy.privacy is None or after.privacy is None or before.privacy is None:
        return found
    return {**dp.observed(strategy.privacy, after.privacy, before.privacy["clip"]), **found}


def _has_scores(update: ClientUpdate) -> bool:
    return bool(update.groups.get(SCORES))


def known_examples(state: State) -> dict[str, int]:
    """Training examples of every client ever seen, as counted at its last planning."""
    return {name: examples for name, (_, examples) in state.clients.items()}


def _combine(
    strategy: Strategy,
    state: State,
    matched: RoundUpdates,
    channel_map: ChannelMap,
    parts: Sequence[PartialSum],
) -> tuple[WeighedUpdates, Arrays, dp.PrivacyState | None]:
    """Each update's weight, the change of the model, and the next privacy state."""
    if strategy.privacy is None:
        weighed = strategy.weighting.weigh_updates(state.weighting, matched)
        if strategy.weighting.measured:
            weighed = replace(weighed, weights=strategy.claims.limited(weighed.weights))
        counts = strategy.weighting.counts(sources_of(matched)) if state.exact else None
        if counts is not None:
            return weighed, exact_mean(matched, counts, parts), state.privacy
        change = strategy.combiner(matched, weighed.weights)
        return weighed, change, state.privacy
    assert state.privacy is not None
    change, privacy = dp.noisy_change(strategy.privacy, state.privacy, state.round + 1, matched, channel_map)
    return WeighedUpdates(np.full(len(matched), 1 / len(matched))), change, privacy


def _apply_change(
    strategy: Strategy,
    state: State,
    sources: Sequence[ClientUpdate],
    change: Arrays,
    *,
    ranks: bool,
    keep: NewArrayStore,
) -> tuple[Arrays, Groups]:
    """The server optimizer's step; none where nobody trained.

    A round that `ranks` channels mostly reorders them: its change is added as it is and leaves no momentum.
    """
    if not any(source.groups["model"] for source in sources):
        return state.params, state.server_optimizer
    if ranks:
        return clamp_variances(add_change(state.params, change)), {}
    params, gathered = apply_optimizer(
        strategy.server_optimizer, state.server_optimizer, state.params, change, keep=keep
    )
    return clamp_variances(params), gathered
