"""The strategy: a frozen record of pieces, the run's state, and the two pure functions that join them.

`plan` chooses devices and cuts their sub-models; `close` turns the updates of a round into the next model.
FedAvg is this code with the full sub-model for everyone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge_client.compression.chain import make_chain
from edge_client.compression.downlink import Down, make_downlink
from edge_client.models.registry import ModelEntry
from edge_client.pruning.channel_selection import Ratio, group_ratios, mean_ratio
from edge_client.pruning.lazy_slicing import Excerpt
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore, store_arrays
from edge_server.strategy.aggregation.combiners import COMBINERS, Combiner
from edge_server.strategy.aggregation.transforms import TRANSFORMS, Transform
from edge_server.strategy.aggregation.updates import (
    ClientUpdate,
    GlobalUpdate,
    HeldCoordinates,
    RoundUpdates,
    TransformContext,
    sources_of,
    to_global,
)
from edge_server.strategy.components import make_component
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from edge_server.strategy.optimizer.step import add_change, apply_optimizer, clamp_variances
from edge_server.strategy.privacy import mechanism as dp
from edge_server.strategy.pruning.pruners import PRUNERS, Cut, Evidence, Pruner
from edge_server.strategy.selection.policies import RATIOS, SELECTIONS, Client, Policy, RoundResult
from edge_server.strategy.selection.schedules import SCHEDULES, Schedule
from edge_server.strategy.weighting.claims import Claims
from edge_server.strategy.weighting.interface import WeighedUpdates, Weighting, similarity
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays, Groups


@dataclass(frozen=True)
class Strategy:
    """One piece per concept (DESIGN.md section 4)."""

    fraction: Schedule
    local_epochs: Schedule | None
    selection: Policy[tuple[str, ...]]
    ratio: Policy[dict[str, Ratio]]
    pruner: Pruner
    objectives: tuple[Component, ...]
    groups: tuple[GroupRule, ...]
    transforms: tuple[Transform, ...]
    weighting: Weighting
    combiner: Combiner
    server_optimizer: ServerOptimizer
    privacy: dp.Gaussian | None = None
    claims: Claims = field(default_factory=Claims)
    uplink: tuple[Component, ...] = ()
    downlink: Down = field(default_factory=Down)

    def count(self, round_number: int, clients: int) -> int:
        """How many of `clients` a round takes: at least one; 0.3 of 10 are 3, whatever 0.3 * 10 exceeds."""
        return min(clients, max(1, math.ceil(self.fraction(round_number) * clients - 1e-9)))


@dataclass(frozen=True)
class State:
    """Everything that a run carries from round to round; `round` counts the rounds that are closed.

    `ordered` says whether the channels of the global model are ranked (ATTENDING, after round one); `groups`
    is what the server holds beside the model, {group: arrays}; `clients` are all that were ever there, as
    {name: (tier, examples)}; `privacy` is the state of `edge_server.strategy.privacy.mechanism`,
    secret included; `paces` is the training speed of devices that state no tier
    (`edge_server.strategy.selection.tier_evidence`).
    """

    params: Arrays
    round: int = 0
    ordered: bool = False
    groups: Groups = field(default_factory=dict)
    clients: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    selection: Any = None
    ratio: Any = None
    weighting: Any = None
    server_optimizer: Groups = field(default_factory=dict)
    observed: Mapping[str, Any] = field(default_factory=dict)
    privacy: Any = None
    paces: Any = None


@dataclass(frozen=True)
class Assignment:
    """What one selected device shall do: its sub-model, its ratio, its epochs if the schedule says so."""

    cut: Cut
    ratio: float
    local_epochs: int | None = None


@dataclass(frozen=True)
class Plan:
    """Who trains what, and after how many updates the round may close."""

    assignments: Mapping[str, Assignment]
    needed: int


@dataclass(frozen=True)
class Network:
    """What the strategy needs to know of the model: where its channels are and which may be cut."""

    entry: ModelEntry
    channel_map: ChannelMap


_EVERYONE = Component(name="constant", options={"value": 1.0})


def make_strategy(
    spec: StrategySpec, ratios: tuple[Ratio, ...], *, rounds: int = 10, seed: int = 0
) -> Strategy:
    """Build every piece that the spec names; raises `ConfigError` for the first that cannot be.

    `ratios`, `rounds` and `seed` are the run's, for pieces that ask for them.
    """
    run = {"rounds": rounds, "seed": seed}
    fraction = make_component("schedule", SCHEDULES, spec.fraction or _EVERYONE, **run)
    epochs = make_component("schedule", SCHEDULES, spec.local_epochs, **run) if spec.local_epochs else None
    make_chain(spec.uplink or ())
    return Strategy(
        fraction=fraction,
        local_epochs=epochs,
        selection=make_component("selection", SELECTIONS, spec.selection),
        ratio=make_component("ratio policy", RATIOS, spec.ratio, ratios=ratios),
        pruner=make_component("pruner", PRUNERS, spec.pruner),
        objectives=spec.objectives,
        groups=tuple(make_component("group rule", GROUPS, piece) for piece in spec.groups),
        transforms=tuple(make_component("transform", TRANSFORMS, piece) for piece in spec.transforms),
        weighting=make_component("weighting", WEIGHTINGS, spec.weighting),
        combiner=make_component("combiner", COMBINERS, spec.combiner),
        server_optimizer=make_component("server optimizer", SERVER_OPTIMIZERS, spec.server_optimizer),
        uplink=spec.uplink or (),
        downlink=make_downlink(spec.downlink or ()),
    )


def start(strategy: Strategy, params: Arrays, *, keep: NewArrayStore = MemoryArrays) -> State:
    """The state before round one; `keep` as in `close`."""
    return State(
        params, groups={rule.name: store_arrays(rule.start(params), keep) for rule in strategy.groups}
    )


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
    """Choose among `clients` for the next round, and cut a sub-model for each that is chosen.

    With `over_select` above 1, that many times as many are asked as are needed. `wanted` asks for so many
    devices, whatever the fraction says (buffered rounds, where whoever is free trains).
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
    """The sub-model of a device with pruning ratio `ratio`, as things stand; `seed` is the round's."""
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    evidence = Evidence(state.ordered, state.params, seed, client)
    made = strategy.pruner.cut(by_group, network.channel_map, evidence)
    return replace(made, objectives=strategy.objectives + made.objectives)


def tier_spec(strategy: Strategy, state: State, network: Network, ratio: Ratio) -> SubModelSpec:
    """The sub-model of the global model that a tier of this ratio stands for, as things stand."""
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    return strategy.pruner.tier(by_group, network.channel_map, params=state.params)


def downlink_groups(strategy: Strategy, state: State, spec: SubModelSpec, channel_map: ChannelMap) -> Groups:
    """What a device with this sub-model receives: its part of the model, and of every group beside it."""
    beside = {
        rule.name: rule.down(state.groups.get(rule.name, {}), spec, channel_map)
        for rule in strategy.groups
        if rule.downlink
    }
    return {
        "model": Excerpt(state.params, spec, channel_map),
        **{n: arrays for n, arrays in beside.items() if arrays},
    }


def close(
    strategy: Strategy,
    state: State,
    updates: Sequence[ClientUpdate],
    channel_map: ChannelMap,
    *,
    clients: Sequence[Client] = (),
    keep: NewArrayStore = MemoryArrays,
) -> State:
    """Aggregate the updates of a round; their order is irrelevant. `clients` are those it was planned for.

    `keep` says where groups and the optimizer's state go; the model is in memory in any case.
    """
    updates, _ = strategy.claims.believed(updates, known_examples(state))
    matched = _matched(strategy, state, updates, channel_map)
    weighed, change, privacy = _combined(strategy, state, matched, channel_map)
    sources = sources_of(matched)
    ranks = not state.ordered and any(source.groups.get("attention") for source in sources)
    params, optimizer = _stepped(strategy, state, change, ranks=ranks, keep=keep)
    names = [source.client for source in sources]
    by_client = {name: float(weight) for name, weight in zip(names, weighed.weights, strict=True)}
    result = RoundResult(
        state.round + 1,
        matched,
        by_client,
        before=state.params,
        after=params,
        clients=clients,
        channel_map=channel_map,
        keep=keep,
    )
    groups, result = _folded(strategy, state, result)
    selection = strategy.selection.observe(state.selection, result)
    ratio = strategy.ratio.observe(state.ratio, result)
    weighting = strategy.weighting.observe(state.weighting, result)
    return replace(
        state,
        params=result.after,
        round=state.round + 1,
        ordered=state.ordered or ranks,
        groups=groups,
        selection=selection,
        ratio=ratio,
        weighting=weighting,
        server_optimizer=optimizer,
        privacy=privacy,
        observed={
            "weights": by_client,
            **({} if weighed.products is None else {"similarity": similarity(weighed.products, names)}),
            **_spent(strategy, state, privacy),
            **strategy.selection.observed(selection),
            **strategy.ratio.observed(ratio),
        },
    )


def known_examples(state: State) -> dict[str, int]:
    """How many examples all clients had that were ever there, as they counted at their last planning."""
    return {name: examples for name, (_, examples) in state.clients.items()}


def _combined(
    strategy: Strategy, state: State, matched: RoundUpdates, channel_map: ChannelMap
) -> tuple[WeighedUpdates, Arrays, Any]:
    """Each update's weight, the change of the model, and what privacy the run has left."""
    if strategy.privacy is None:
        weighed = strategy.weighting.weighed(state.weighting, matched)
        if strategy.weighting.measured:
            weighed = replace(weighed, weights=strategy.claims.limited(weighed.weights))
        return weighed, strategy.combiner(matched, weighed.weights), state.privacy
    change, privacy = dp.noisy_change(strategy.privacy, state.privacy, state.round + 1, matched, channel_map)
    return WeighedUpdates(np.full(len(matched), 1 / len(matched))), change, privacy


def _spent(strategy: Strategy, state: State, privacy: Any) -> dict[str, Any]:
    if strategy.privacy is None:
        return {}
    return dp.observed(strategy.privacy, privacy, state.privacy["clip"])


def _stepped(
    strategy: Strategy, state: State, change: Arrays, *, ranks: bool, keep: NewArrayStore
) -> tuple[Arrays, Groups]:
    """The server optimizer's step.

    A round that `ranks` channels mostly reorders them: that is taken as it is, no direction to go on in.
    """
    if ranks:
        return clamp_variances(add_change(state.params, change)), {}
    held, optimizer = state.server_optimizer, strategy.server_optimizer
    params, gathered = apply_optimizer(optimizer, held, state.params, change, keep=keep)
    return clamp_variances(params), gathered


def _matched(
    strategy: Strategy, state: State, updates: Sequence[ClientUpdate], channel_map: ChannelMap
) -> RoundUpdates:
    """The updates by client's name, in global coordinates, after every transform."""
    sources = sorted(updates, key=lambda update: update.client)
    around = TransformContext(state.params, channel_map, sources, state.ordered)
    holdings = HeldCoordinates(channel_map)

    def make_component(source: ClientUpdate) -> GlobalUpdate:
        update = to_global(source, channel_map, holdings)
        for transform in strategy.transforms:
            update = transform(update, around)
        return update

    return RoundUpdates(sources, make_component)


def _folded(strategy: Strategy, state: State, result: RoundResult) -> tuple[Groups, RoundResult]:
    """Every group after the round; a rule that has a say in the model gives the next one its word."""
    groups = {}
    for rule in strategy.groups:
        folded = rule.fold(state.groups.get(rule.name, {}), result)
        groups[rule.name] = folded.held
        result = replace(result, after=folded.params)
    return groups, result
