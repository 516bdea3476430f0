"""What a device answers with after training, and in whose coordinates: the sub-model's or the global ones.

An array that bears a parameter's name has that parameter's axes, in whatever group it stands; any other
array (attention scores, prototypes' counts) is left as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from edge_client.pruning.channel_selection import group_scores, personal_spec, prefix_spec, ranking
from edge_client.pruning.lazy_slicing import LazySlice
from edge_client.pruning.slicing import expand, permute
from schemas.messages import TrainTask
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import ComputedArrays, kind_of, rows_of
from schemas.tensors.blobs import Arrays, Groups

Order = Mapping[str, Sequence[int]]


class Answer:
    """The groups of an update, cut to what the task asks back; `spec` is the sub-model that they are of.

    `order` is how the server will reorder this device's channels (ATTENDING's attention matching); empty
    where it will not.
    """

    def __init__(self, task: TrainTask, channel_map: ChannelMap, groups: Groups) -> None:
        self._task, self._channel_map, self._groups = task, channel_map, groups
        scores = groups.get("attention") if task.personal is not None else None
        self._scores = group_scores(scores, channel_map) if scores else {}
        self.spec = self._personal_spec()
        self.order = attention_order(self._scores, channel_map)

    def groups(self, delta: Arrays) -> Groups:
        """All groups, `model` with them, as they are sent."""
        returned = _of_layers(delta, self._task.returned)
        whole = {**self._groups, "model": returned}
        if self._task.personal is None:
            return whole
        return in_sub_model(whole, self.spec, self._channel_map)

    def _personal_spec(self) -> SubModelSpec:
        """The channels that this device attends to most, if the task asks for that.

        Without a single example there are no scores; the leading channels then stand for the unknown best.
        """
        if self._task.personal is None:
            return self._task.spec
        ratios = self._task.personal.ratios
        if self._scores:
            return personal_spec(self._scores, ratios, self._channel_map)
        return prefix_spec(ratios, self._channel_map)


def attention_order(scores: Arrays, channel_map: ChannelMap) -> Order:
    """Per channel group, all its channels by descending score [C]; what attention matching goes by."""
    return {name: ranking(values, channel_map.groups[name].multiple) for name, values in scores.items()}


def in_sub_model(groups: Groups, spec: SubModelSpec, channel_map: ChannelMap) -> Groups:
    """Cut every array that bears a parameter's name from global coordinates to the channels of `spec`.

    Each is cut when it is asked for; `InvariantError` for a shape that does not fit.
    """
    return {group: LazySlice(arrays, spec, channel_map) for group, arrays in groups.items()}


def in_global(
    groups: Groups, before: Groups, spec: SubModelSpec, channel_map: ChannelMap, order: Order
) -> Groups:
    """Put a sub-model's groups back over `before`, in global coordinates and the channels' new order.

    What the sub-model does not hold stays as it was before, or 0.
    """
    after: dict[str, Arrays] = {}
    for group, arrays in groups.items():
        known = before.get(group, {})
        full, coverage = expand(_parameters(arrays, channel_map), spec, channel_map)
        laid = {
            name: np.where(coverage[name], array, known[name]) if name in known else array
            for name, array in full.items()
        }
        after[group] = {**arrays, **permute(laid, order, channel_map)}
    return after


def _parameters(arrays: Arrays, channel_map: ChannelMap) -> Arrays:
    return {name: array for name, array in arrays.items() if name in channel_map.parameters}


def _of_layers(arrays: Arrays, layers: Sequence[str] | None) -> Arrays:
    if layers is None:
        return arrays
    names = [name for name in arrays if name.rpartition(".")[0] in layers]
    return ComputedArrays({name: kind_of(arrays, name) for name in names}, partial(rows_of, arrays))
