"""The groups of a device's answer after training, in the sub-model's or the global coordinates.

An array with the name of a parameter has its axes, in any group; any other array (attention scores, counts of
prototypes) stays unchanged.
"""

import numpy as np

from edge_client.pruning.channel_selection import group_scores, personal_spec, prefix_spec
from edge_client.pruning.lazy_slicing import LazySlice
from edge_client.pruning.own_layers import arrays_of_layers
from edge_client.pruning.slicing import expand
from schemas.messages import TrainTask
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays, Groups


class Answer:
    """The groups of an update, reduced to those that the task requests; `spec` is their sub-model."""

    def __init__(self, task: TrainTask, channel_map: ChannelMap, groups: Groups) -> None:
        self._task, self._channel_map, self._groups = task, channel_map, groups
        scores = groups.get("attention") if task.personal is not None else None
        self._scores = group_scores(scores, channel_map) if scores else {}
        self.spec = self._personal_spec()

    def groups(self, delta: Arrays) -> Groups:
        """All groups to send, with `delta` as `model`."""
        layers = self._task.returned
        whole = {**self._groups, "model": delta if layers is None else arrays_of_layers(delta, layers)}
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
    return {group: LazySlice(arrays, spec, channel_map) for group, arrays in groups.items()}


def in_global(groups: Groups, before: Groups, spec: SubModelSpec, channel_map: ChannelMap) -> Groups:
    """A sub-model's groups in global coordinates; other values are from `before`, or 0."""
    after: dict[str, Arrays] = {}
    for group, arrays in groups.items():
        known = before.get(group, {})
        own = {name: array for name, array in arrays.items() if name in channel_map.parameters}
        full, coverage = expand(own, spec, channel_map)
        laid = {**arrays, **full}
        for name in full.keys() & known.keys():
            laid[name] = np.where(coverage[name], full[name], known[name])
        after[group] = laid
    return after
