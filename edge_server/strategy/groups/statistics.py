"""Static batch normalisation: the statistics that devices measure become the model's (Diao et al. 2021)."""

from collections.abc import Mapping, Sequence

import numpy as np

from edge_server.strategy.aggregation.updates import GlobalUpdate, group_to_global, is_statistic
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, Shape
from edge_server.strategy.selection.interface import RoundResult
from schemas.errors import PeerError
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Array, Arrays
from schemas.values import ModelSpec, Reason

MEAN, VARIANCE = ".running_mean", ".running_var"


class Statistics(GroupRule):
    """Mean and variance of all examples together, per channel over the devices that have it; sent up only.

    A device with n examples, mean m and variance v counts with n, n m and n (v + m^2), so that the variance
    between devices counts too. Channels that nobody measured keep what they have.
    """

    name = "statistics"
    downlink = False

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        """The statistics among the sub-model's arrays."""
        return {name: shape for name, shape in model.items() if is_statistic(name)}

    def check(self, sent: Arrays, examples: int) -> None:
        """Variances are at least 0."""
        for name, values in sent.items():
            if name.endswith(VARIANCE) and bool((values < 0).any()):
                raise PeerError(f"'{name}' has variances below 0", reason=Reason.OUT_OF_BOUNDS)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """The model with the statistics of a round in which devices sent them."""
        senders = [update for update in result.updates if update.source.groups.get(self.name)]
        if not senders:
            return FoldedGroup(held, result.after)
        measured = dict(result.after)
        for mean in [name for name in measured if name.endswith(MEAN)]:
            variance = mean.removesuffix(MEAN) + VARIANCE
            measured |= _combined(senders, mean, variance, result.after, result.channel_map)
        return FoldedGroup(held, measured)


def _combined(
    senders: Sequence[GlobalUpdate], mean: str, variance: str, before: Arrays, channel_map: ChannelMap
) -> dict[str, Array]:
    """The mean [C] and the variance [C] over all senders' examples, by name."""
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
