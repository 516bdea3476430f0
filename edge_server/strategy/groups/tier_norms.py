"""Batch normalisation of every tier's own (NeFL, Kang et al. 2023, section 3: inconsistent parameters)."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import GlobalUpdate, is_statistic
from edge_server.strategy.groups.own_arrays import FULL, arrays_of_tier, by_tier
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule
from edge_server.strategy.selection.interface import RoundResult
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import kind_of
from schemas.tensors.blobs import Array, Arrays


class TierNorms(GroupRule):
    """Weights, biases and statistics of batch normalisation are means over one tier's devices, not over all.

    Widths see inputs of different magnitudes. The server holds `{key}/{parameter}` in global coordinates,
    where `key` is the number of channels that the tier keeps of each group. A tier begins with the global
    model's arrays. Nothing else is sent than the model, in which a device has its tier's normalisation.
    """

    name = "tier-norms"
    owns = True
    downlink = False
    uplink = False

    def own(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """The normalisation of the tier with this sub-model; {} before its first round."""
        return arrays_of_tier(held, spec, channel_map)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """Add to each tier's arrays the mean of its devices' changes, by their weights."""
        trained = [update for update in result.updates if update.source.groups["model"]]
        names = normalisation(result.before)
        after = dict(held)
        for key, updates in by_tier(trained, result.channel_map).items():
            for name in names:
                before = held.get(f"{key}/{name}", result.before[name])
                after[f"{key}/{name}"] = before + _mean_change(updates, name, result.weights)
        whole = {name: after.get(f"{FULL}/{name}", result.before[name]) for name in names}
        return FoldedGroup(after, {**result.after, **whole})


def normalisation(names: Arrays) -> list[str]:
    """The arrays of batch normalisations, which are the layers with running statistics."""
    layers = {name.rpartition(".")[0] for name in names if is_statistic(name)}
    return [name for name in names if name.rpartition(".")[0] in layers]


def _mean_change(
    updates: Sequence[GlobalUpdate], name: str, weights: Mapping[str, float]
) -> NDArray[np.float32]:
    """The mean change [C] over the devices of a tier, which hold the same number of channels."""
    shape = kind_of(updates[0].delta, name)[1]
    total, held = np.zeros(shape), np.zeros(shape)
    for update in updates:
        weight = weights[update.source.client]
        total += weight * np.asarray(update.delta[name], np.float64)
        held[update.held.index_set(name).index] += weight
    change: Array = np.divide(total, held, out=np.zeros_like(total), where=held > 0)
    return change.astype(np.float32)
