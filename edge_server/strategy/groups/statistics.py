"""Static batch normalisation: the statistics that devices measure become the model's (Diao et al. 2021)."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from edge_server.strategy.aggregation.updates import GlobalUpdate, group_to_global, has_trained, is_statistic
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, GroupTraits, Shape
from edge_server.strategy.selection.interface import RoundResult
from schemas.errors import PeerError, Reason
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Arrays
from schemas.values import ModelSpec

# Arrays that a tier has of its own, kept under `{key}/{parameter}` in global coordinates.

FULL = "full"  # the key of the full network, whose arrays are the global model's


def tier_key(spec: SubModelSpec, channel_map: ChannelMap) -> str:
    """The number of channels that a sub-model keeps of each group: equal for all devices of a tier."""
    counts = {name: spec.count(name, group.channels) for name, group in channel_map.groups.items()}
    if all(counts[name] == group.channels for name, group in channel_map.groups.items()):
        return FULL
    return ",".join(f"{name}:{count}" for name, count in sorted(counts.items()))


def arrays_of_tier(held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
    """The arrays of the tier with this sub-model, by parameter; {} if it has none."""
    prefix = f"{tier_key(spec, channel_map)}/"
    return {name.removeprefix(prefix): held[name] for name in held if name.startswith(prefix)}


def by_tier(updates: Iterable[GlobalUpdate], channel_map: ChannelMap) -> dict[str, list[GlobalUpdate]]:
    tiers: dict[str, list[GlobalUpdate]] = {}
    for update in updates:
        tiers.setdefault(tier_key(update.source.spec, channel_map), []).append(update)
    return tiers


MEAN, VARIANCE = ".running_mean", ".running_var"


@GroupTraits(ignores_models=True)
class Statistics(GroupRule):
    """Mean and variance of all examples of a tier together; sent up only.

    A device with n examples, mean m and variance v counts with n, n m and n (v + m^2), so that the variance
    between devices counts too. Each tier has statistics of its own, since a narrower network has other
    activations (as slimmable networks do; Yu and Huang 2019, section 3.2). The global model has those of the
    full network, or of all devices that hold a channel if nobody measured the full network. Channels that
    nobody measured keep what they have.
    """

    name = "statistics"
    downlink = False
    measured = True

    def own(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """The statistics of the tier with this sub-model; {} before they are measured."""
        return arrays_of_tier(held, spec, channel_map)

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        return {name: shape for name, shape in model.items() if is_statistic(name)}

    def check(self, sent: Arrays, examples: int) -> None:
        for name, values in sent.items():
            if name.endswith(VARIANCE) and bool((values < 0).any()):
                raise PeerError(f"'{name}' has variances below 0", reason=Reason.OUT_OF_BOUNDS)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """The model with the statistics of a round in which nobody trained.

        In a round of training they are ignored, and those of an earlier model are dropped.
        """
        senders = [update for update in result.updates if update.source.groups.get(self.name)]
        if has_trained(update.source for update in result.updates):
            return FoldedGroup({}, result.after)
        if not senders:
            return FoldedGroup(held, result.after)
        tiers = by_tier(senders, result.channel_map)
        measured = {
            f"{key}/{name}": array
            for key, updates in tiers.items()
            for name, array in _combine_statistics(updates, result.after, result.channel_map).items()
        }
        whole = _combine_statistics(tiers.get(FULL, senders), result.after, result.channel_map)
        return FoldedGroup(measured, {**result.after, **whole})


def _combine_statistics(
    senders: Sequence[GlobalUpdate], before: Arrays, channel_map: ChannelMap
) -> dict[str, Array]:
    """The statistics of every normalisation over all senders' examples, by name."""
    found: dict[str, Array] = {}
    sent = dict.fromkeys(name for update in senders for name in update.source.groups[Statistics.name])
    for mean in [name for name in sent if name.endswith(MEAN)]:
        found |= _join_normalisation(senders, mean, mean.removesuffix(MEAN) + VARIANCE, before, channel_map)
    return found


def _join_normalisation(
    senders: Sequence[GlobalUpdate], mean: str, variance: str, before: Arrays, channel_map: ChannelMap
) -> dict[str, Array]:
    """The mean [C] and the variance [C] of one normalisation."""
    shape = np.shape(before[mean])
    count, total, squares = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    for update in senders:
        sent, held = group_to_global(update, Statistics.name, channel_map)
        place, examples = held.index_set(mean).index, max(1, update.source.examples)
        own = np.asarray(sent[mean], np.float64)
        count[place] += examples
        total += examples * own
        squares += examples * (np.asarray(sent[variance], np.float64) + own**2)
    seen = count > 0
    means = np.divide(total, count, out=np.array(before[mean], np.float64), where=seen)
    variances = np.divide(squares, count, out=np.array(before[variance], np.float64), where=seen)
    variances[seen] -= means[seen] ** 2
    return {mean: means.astype(np.float32), variance: np.maximum(variances, 0).astype(np.float32)}
