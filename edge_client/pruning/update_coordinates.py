"""The groups of a device's answer after training, in the sub-model's or the global coordinates.

An array with the name of a parameter has its axes, in any group; any other array (attention scores, counts of
prototypes) stays unchanged.
"""

from collections.abc import Collection
from functools import partial

import numpy as np

from edge_client.pruning import index_sets
from edge_client.pruning.channel_selection import group_scores, personal_spec, prefix_spec
from schemas.messages import TrainTask, tasks
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import (
    AnyArray,
    Arrays,
    ComputedArrays,
    GatheredArrays,
    Groups,
    add_changes,
    kind_of,
    rows_of,
)

# The groups of a device's private state with its own layers, and with what of them it has ever held.
OWN, HELD = "own", "own-held"
# The group with the model towards which a training is pulled, where that is not the model it starts from.
ANCHOR = "anchor"


def with_own(received: Groups, kept: Groups, layers: Collection[str]) -> Groups:
    """The received groups with the device's own arrays of these layers in `model`, where it has kept any.

    Channels that the device never held have the received values. All arrays are in the sub-model's
    coordinates, and made when read.
    """
    model, own = received["model"], arrays_of_layers(kept.get(OWN, {}), layers)
    if not own:
        return received
    kinds = {name: kind_of(model, name) for name in own}
    mixed = ComputedArrays(kinds, partial(_where, kept[HELD], own, model))
    places = {name: (mixed, name) if name in own else (model, name) for name in model}
    return {**received, "model": GatheredArrays(places)}


def kept_own(received: Arrays, delta: Arrays, layers: Collection[str]) -> Groups:
    """The groups of the trained arrays of these layers, received plus change; nothing without layers."""
    change = arrays_of_layers(delta, layers)
    if not change:
        return {}
    own = add_changes(received, change)
    return {OWN: own, HELD: {name: np.ones(own.kind(name)[1], bool) for name in own}}


def _where(held: Arrays, own: Arrays, model: Arrays, name: str, start: int, stop: int) -> AnyArray:
    return np.where(*[rows_of(arrays, name, start, stop) for arrays in (held, own, model)])


def arrays_of_layers(arrays: Arrays, layers: Collection[str]) -> Arrays:
    return GatheredArrays({name: (arrays, name) for name in arrays if name.rpartition(".")[0] in layers})


def with_frozen(received: Groups, frozen: Arrays) -> Groups:
    """The received groups with the arrays of `model` that no device trains."""
    parts = (received.get("model", {}), frozen)
    return {**received, "model": GatheredArrays({name: (part, name) for part in parts for name in part})}


def _select_returned(delta: Arrays, task: TrainTask) -> Arrays:
    if task.returned is None:
        return delta
    names = frozenset(task.returned)
    return GatheredArrays({name: (delta, name) for name in delta if tasks.is_returned(name, names)})


class Answer:
    """The groups of an update, reduced to those that the task requests; `spec` is their sub-model."""

    def __init__(self, task: TrainTask, channel_map: ChannelMap, groups: Groups) -> None:
        self._task, self._channel_map, self._groups = task, channel_map, groups
        scores = groups.get("attention") if task.personal is not None else None
        self._scores = group_scores(scores, channel_map) if scores else {}
        self.spec = self._personal_spec()

    def groups(self, delta: Arrays) -> Groups:
        """All groups to send, with `delta` as `model`."""
        whole = {**self._groups, "model": _select_returned(delta, self._task)}
        if self._task.personal is None:
            return whole
        return in_sub_model(whole, self.spec, self._channel_map)

    def _personal_spec(self) -> SubModelSpec:
        """The channels with the highest attention if the task requests them; without scores, the first."""
        if self._task.personal is None:
            return self._task.spec
        ratios = self._task.personal.ratios
        if self._scores:
            return personal_spec(self._scores, ratios, self._channel_map)
        return prefix_spec(ratios, self._channel_map)


def in_sub_model(groups: Groups, spec: SubModelSpec, channel_map: ChannelMap) -> Groups:
    """Slice the parameters' arrays to `spec` when read; raises `InvariantError` for a wrong shape."""
    return {group: index_sets.LazySlice(arrays, spec, channel_map) for group, arrays in groups.items()}


def in_global(groups: Groups, before: Groups, spec: SubModelSpec, channel_map: ChannelMap) -> Groups:
    """A sub-model's groups in global coordinates; other values are from `before`, or 0."""
    after: dict[str, Arrays] = {}
    for group, arrays in groups.items():
        known = before.get(group, {})
        own = {name: array for name, array in arrays.items() if name in channel_map.parameters}
        full, coverage = index_sets.expand(own, spec, channel_map)
        laid = {**arrays, **full}
        for name in full.keys() & known.keys():
            laid[name] = np.where(coverage[name], full[name], known[name])
        after[group] = laid
    return after
