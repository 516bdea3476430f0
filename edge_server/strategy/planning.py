"""The first half of a round: which devices take part, and with which sub-models."""

import math
from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial

import numpy as np

from edge_client.pruning.channel_selection import Ratio, group_ratios, mean_ratio
from edge_server.strategy.aggregation.updates import is_statistic
from edge_server.strategy.groups.rule import Tiers, cut_groups, own_params
from edge_server.strategy.groups.widths import Widths
from edge_server.strategy.pruning.interface import Cut, Evidence
from edge_server.strategy.selection.interface import Client
from edge_server.strategy.strategy import Assignment, Network, Plan, State, Strategy, statistics_request
from schemas.messages.tasks import is_returned
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays, Groups


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
    seed, whole = int(rng.integers(2**32)), _whole_groups(strategy, network)
    cut_for = partial(cut, strategy, state, network, seed=seed, whole=whole)
    assignments = {
        client.name: Assignment(
            cut_for(ratios[client.name], client=client.name, tier=client.tier),
            mean_ratio(ratios[client.name]),
            epochs,
        )
        for client in selected
    }
    return Plan(assignments, needed=count)


def cut(
    strategy: Strategy,
    state: State,
    network: Network,
    ratio: Ratio,
    *,
    seed: int = 0,
    client: str = "",
    tier: int = 1,
    whole: Set[str] = frozenset(),
) -> Cut:
    """The sub-model of a device of this tier with pruning ratio `ratio`; `seed` is the round's.

    No tier cuts the groups `whole`.
    """
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    evidence = Evidence(state.ordered, state.pruning, state.params, seed, state.round + 1, client)
    if (request := statistics_request(strategy, state)) is not None:
        return Cut(SubModelSpec(), train=False, returned=(), statistics=request)
    if not strategy.trains:
        return Cut(strategy.pruner.tier(by_group, network.channel_map, evidence), train=False, returned=())
    if strategy.is_summed(evidence.round):
        spec = strategy.pruner.tier(by_group, network.channel_map, evidence)
        trained = network.parts.in_order(tier, network.registered_map)
        return Cut(spec, objectives=strategy.summing, train=False, returned=(), trained=trained)
    cut_by_any = {name: ratio for name, ratio in by_group.items() if name not in whole}
    made = strategy.pruner.cut(cut_by_any, network.registered_map, evidence)
    own = strategy.own.layers(network.registered_map) if strategy.own and strategy.withholds else ()
    is_due = evidence.round % strategy.measure_every == 0
    if made.personal is None and is_due and measures_statistics(strategy, network):
        trained = network.parts.of_any_tier(network.registered_map)
        return Cut(
            made.spec, objectives=strategy.measuring, train=False, returned=(), own=own, trained=trained
        )
    returned = made.returned
    if own:
        layers = dict.fromkeys(name.rpartition(".")[0] for name in network.registered_map.parameters)
        returned = tuple(layer for layer in (layers if returned is None else returned) if layer not in own)
    if (trained := network.parts.in_order(tier, network.registered_map)) is not None:
        returned = tuple(name for name in trained if is_returned(name, returned))
        made = replace(made, trained=trained, adapters=network.parts.adapters_of(tier))
    objectives = strategy.objectives + made.objectives
    second = strategy.own.own_model if strategy.own is not None else None
    return replace(made, objectives=objectives, returned=returned, own=own, own_model=second)


def _whole_groups(strategy: Strategy, network: Network) -> frozenset[str]:
    """The groups that no tier cuts: devices need not rank their channels."""
    tiers = [group_ratios(network.entry, tier, network.channel_map) for tier in strategy.tiers]
    return frozenset(name for name in (tiers or [{}])[0] if not any(tier[name] for tier in tiers))


def measures_statistics(strategy: Strategy, network: Network) -> bool:
    """Whether devices measure the statistics of the network's batch normalisations, if it trains any."""
    return bool(strategy.measuring) and any(
        map(is_statistic, network.parts.cut(network.channel_map).parameters)
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
    strategy: Strategy, state: State, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple
) -> Groups:
    """What a device with this sub-model receives: its part of the model and of every downlink group."""
    smaller = tiers if _is_ranked(strategy, state) else tuple
    return cut_groups(strategy.groups, state.params, state.groups, spec, channel_map, smaller)


def sends_widths(strategy: Strategy, state: State) -> bool:
    """Whether devices get the smaller tiers of their sub-models (group `widths`)."""
    return any(rule.name == Widths.name for rule in strategy.groups) and _is_ranked(strategy, state)


def _is_ranked(strategy: Strategy, state: State) -> bool:
    return strategy.pruner.is_ranked(Evidence(state.ordered, state.pruning, state.params))
