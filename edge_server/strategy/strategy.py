"""The strategy: a frozen record of pieces, the run's state, and the two pure functions that join them.

`plan` chooses devices and cuts their sub-models; `close` turns the updates of a round into the next model.
FedAvg is this code with the full sub-model for everyone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from edge_client.models.registry import ModelEntry
from edge_client.pruning import group_ratios
from edge_server.strategy.combiners import COMBINERS, Combiner
from edge_server.strategy.pieces import make
from edge_server.strategy.policies import RATIOS, SELECTIONS, Client, Policy, RoundResult
from edge_server.strategy.pruners import PRUNERS, Cut, Pruner
from edge_server.strategy.schedules import SCHEDULES, Schedule
from edge_server.strategy.server_optimizers import SERVER_OPTIMIZERS, ServerOptimizer
from edge_server.strategy.transforms import TRANSFORMS, Transform
from edge_server.strategy.updates import ClientUpdate, globalised
from edge_server.strategy.weighting import WEIGHTINGS, Weighting
from schemas.blobs import Arrays, Groups
from schemas.strategy import Piece, StrategySpec
from schemas.submodel import ChannelMap, SubModelSpec


@dataclass(frozen=True)
class Strategy:
    """One piece per concept (DESIGN.md section 4)."""

    fraction: Schedule
    local_epochs: Schedule | None
    selection: Policy[tuple[str, ...]]
    ratio: Policy[dict[str, float]]
    pruner: Pruner
    objectives: tuple[Piece, ...]
    transforms: tuple[Transform, ...]
    weighting: Weighting
    combiner: Combiner
    server_optimizer: ServerOptimizer


@dataclass(frozen=True)
class State:
    """Everything that a run carries from round to round; `round` counts the rounds that are closed.

    `ordered` says whether the channels of the global model are ranked (ATTENDING, after round one).
    """

    params: Arrays
    round: int = 0
    ordered: bool = False
    selection: Any = None
    ratio: Any = None
    weighting: Any = None
    server_optimizer: Groups = field(default_factory=dict)
    observed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Assignment:
    """What one selected device shall do: its sub-model, its ratio, its epochs if the schedule says so."""

    cut: Cut
    ratio: float
    local_epochs: int | None = None


@dataclass(frozen=True)
class Network:
    """What the strategy needs to know of the model: where its channels are and which may be cut."""

    entry: ModelEntry
    channel_map: ChannelMap


_EVERYONE = Piece(name="constant", options={"value": 1.0})


def make_strategy(
    spec: StrategySpec, ratios: tuple[float, ...], *, rounds: int = 10, seed: int = 0
) -> Strategy:
    """Build every piece that the spec names; raises `ConfigError` for the first that cannot be.

    `ratios`, `rounds` and `seed` are the run's, for pieces that ask for them.
    """
    run = {"rounds": rounds, "seed": seed}
    fraction = make("schedule", SCHEDULES, spec.fraction or _EVERYONE, **run)
    epochs = make("schedule", SCHEDULES, spec.local_epochs, **run) if spec.local_epochs else None
    return Strategy(
        fraction=fraction,
        local_epochs=epochs,
        selection=make("selection", SELECTIONS, spec.selection, fraction=fraction),
        ratio=make("ratio policy", RATIOS, spec.ratio, ratios=ratios),
        pruner=make("pruner", PRUNERS, spec.pruner),
        objectives=spec.objectives,
        transforms=tuple(make("transform", TRANSFORMS, piece) for piece in spec.transforms),
        weighting=make("weighting", WEIGHTINGS, spec.weighting),
        combiner=make("combiner", COMBINERS, spec.combiner),
        server_optimizer=make("server optimizer", SERVER_OPTIMIZERS, spec.server_optimizer),
    )


def plan(
    strategy: Strategy, state: State, clients: Sequence[Client], network: Network, rng: np.random.Generator
) -> dict[str, Assignment]:
    """Choose among `clients` for the next round, and cut a sub-model for each that is chosen."""
    number = state.round + 1
    chosen = set(strategy.selection.act(state.selection, clients, number, rng))
    selected = [client for client in clients if client.name in chosen]
    ratios = strategy.ratio.act(state.ratio, selected, number, rng)
    epochs = round(strategy.local_epochs(number)) if strategy.local_epochs else None
    seed = int(rng.integers(2**32))
    return {
        client.name: Assignment(
            cut(strategy, state, network, ratios[client.name], seed=seed), ratios[client.name], epochs
        )
        for client in selected
    }


def cut(strategy: Strategy, state: State, network: Network, ratio: float, *, seed: int = 0) -> Cut:
    """The sub-model of a device with pruning ratio `ratio`, as things stand; `seed` is the round's."""
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    made = strategy.pruner.cut(
        by_group, network.channel_map, ordered=state.ordered, params=state.params, seed=seed
    )
    return replace(made, objectives=strategy.objectives + made.objectives)


def tier_spec(strategy: Strategy, state: State, network: Network, ratio: float) -> SubModelSpec:
    """The sub-model of the global model that a tier of this ratio stands for, as things stand."""
    by_group = group_ratios(network.entry, ratio, network.channel_map)
    return strategy.pruner.tier(by_group, network.channel_map, params=state.params)


def close(
    strategy: Strategy,
    state: State,
    updates: Sequence[ClientUpdate],
    channel_map: ChannelMap,
    *,
    clients: Sequence[Client] = (),
) -> State:
    """Aggregate the updates of a round; their order is irrelevant. `clients` are those it was planned for."""
    ranked = sorted(updates, key=lambda update: update.client)
    matched = [globalised(update, channel_map) for update in ranked]
    for transform in strategy.transforms:
        matched = [transform(update, state.params, channel_map) for update in matched]
    weights = strategy.weighting.weigh(state.weighting, matched)
    change = strategy.combiner(matched, weights)
    pseudo_gradient = {name: -array for name, array in change.items()}
    params, optimizer = strategy.server_optimizer.step(state.server_optimizer, state.params, pseudo_gradient)
    by_client = {update.client: float(weight) for update, weight in zip(ranked, weights, strict=True)}
    result = RoundResult(
        state.round + 1, matched, by_client, before=state.params, after=params, clients=clients
    )
    selection = strategy.selection.observe(state.selection, result)
    ratio = strategy.ratio.observe(state.ratio, result)
    return replace(
        state,
        params=params,
        round=state.round + 1,
        ordered=state.ordered or any(update.groups.get("attention") for update in ranked),
        selection=selection,
        ratio=ratio,
        weighting=strategy.weighting.observe(state.weighting, result),
        server_optimizer=optimizer,
        observed={
            "weights": by_client,
            **strategy.selection.observed(selection),
            **strategy.ratio.observed(ratio),
        },
    )
