"""What a closed round shows of channels and clients, kept for explanations; no run needs it to resume.

It is computed from existing values: scores that devices sent, the global model one parameter at a time, and
the similarities of a weighting.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.channel_selection import group_scores, ranking
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.explanations import ChannelScores, Observation, Similarity
from edge_server.strategy.pruning.pruners import l1_norms
from edge_server.strategy.strategy import State
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays

MAX_ROUNDS = 100
MAX_NUMBERS = 60_000
"""Most scores and listed channels of one observation; mobilenet-v2 with five tiers has half of that."""

Scores = Mapping[str, NDArray[np.float64]]


def is_observed(number: int, rounds: int) -> bool:
    """Whether round `number` of `rounds` is observed: about a hundred are, with the first and the last."""
    step = 2 ** max(0, math.ceil(math.log2(rounds / MAX_ROUNDS)))
    return number in (1, rounds) or number % step == 0


def observation(
    state: State,
    updates: Sequence[ClientUpdate],
    channel_map: ChannelMap,
    specs: Mapping[int, SubModelSpec],
    groups: Sequence[str],
    *,
    ranked: bool,
) -> Observation:
    """The observation of the round that led to `state`; `specs` are the tiers', `groups` the prunable ones.

    With `ranked` channels it has the devices' attention scores, else the magnitude of the weights.
    """
    attention = (_own_orders(updates, channel_map) if state.ordered else state.pruning) if ranked else {}
    scores = attention or _magnitude(state.params, groups, channel_map)
    alike = state.observed.get("similarity")
    return Observation(
        round=state.round,
        groups=_bound_groups(
            {
                name: ChannelScores(
                    layers=channel_map.groups[name].layers,
                    measure="attention" if attention else "magnitude",
                    scores=tuple(float(f"{score:.5g}") for score in scores[name]),
                    kept={
                        tier: spec.kept.get(name, channel_map.groups[name].channels)
                        for tier, spec in specs.items()
                    },
                )
                for name in groups
                if name in scores and np.isfinite(scores[name]).all()
            }
        ),
        similarity=None if alike is None else Similarity.model_validate(alike),
    )


def _own_orders(updates: Sequence[ClientUpdate], channel_map: ChannelMap) -> Scores:
    """By channel of the new model: the mean over devices of the score of their own channel of that rank."""
    found: dict[str, list[NDArray[np.float32]]] = {}
    for update in updates:
        for name, scores in group_scores(update.groups.get("attention", {}), channel_map).items():
            order = ranking(scores, channel_map.groups[name].multiple)
            found.setdefault(name, []).append(scores[list(order)])
    return {name: np.mean(rows, axis=0, dtype=np.float64) for name, rows in found.items()}


def _magnitude(params: Arrays, groups: Sequence[str], channel_map: ChannelMap) -> Scores:
    """The mean over a group's layers of the L1 norm of a channel's weights."""
    norms = l1_norms(dict.fromkeys(groups, 0.0), channel_map, params)
    return {name: scores.astype(np.float64) for name, scores in group_scores(norms, channel_map).items()}


def _bound_groups(groups: Mapping[str, ChannelScores]) -> dict[str, ChannelScores]:
    kept, left = {}, MAX_NUMBERS
    for name, group in groups.items():
        size = len(group.scores) + sum(len(ids) for ids in group.kept.values() if not isinstance(ids, int))
        if size <= left:
            kept[name], left = group, left - size
    return kept
