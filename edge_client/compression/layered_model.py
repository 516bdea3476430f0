"""A state in layers, as in scalable video: what the smallest sub-model holds, then what each larger one adds.

A layer is a blob of parameter groups. It says itself which sub-model it completes (group `spec+`). An array
is left out where it is that of the smaller sub-model; is in the group `{group}+`, flat, row by row, where
only its values outside the smaller one's are sent; and is whole in its own group otherwise. So nothing is
lost, whatever the groups' rules are and whatever the types.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from edge_client.compression.delta_frames import added_up
from edge_client.compression.unpacking import GroupStore
from edge_client.pruning.index_sets import IndexSet, as_slice, submodel_index_set, to_array
from edge_client.pruning.lazy_slicing import read_rows
from schemas.errors import PeerError
from schemas.messages import Task
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors.arrays import AnyArray, KnownArrays, kind_of, rows_of
from schemas.tensors.blobs import FileGroups, Groups

ADDED = "+"
SPEC = "spec+"
"""The group that says which channels a layer completes: a number per prefix, the indices of a list."""


@dataclass(frozen=True, eq=False)
class Holding:
    """What a sub-model holds: its groups, which may be lazy."""

    spec: SubModelSpec
    groups: Groups


class Block(IndexSet):
    """Where a smaller sub-model's array lies in a larger one's of `shape`."""

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """Where each row's added values begin among all that are added, and where they end."""
        row = math.prod(self.shape[1:])
        counts = np.full(self.shape[0], row, np.intp)
        counts[self.axes[0]] = row - math.prod(self.sizes[1:])
        return np.concatenate([np.zeros(1, np.intp), np.cumsum(counts)])

    def is_added(self, start: int, stop: int) -> AnyArray:
        """Of rows `start` to `stop - 1`, which values the smaller array lacks."""
        return ~self.slice_rows(start, stop)[1].mask


def block_of(
    layout: ParameterLayout, smaller: SubModelSpec, larger: SubModelSpec, *, shape: tuple[int, ...]
) -> Block | None:
    """Where one sub-model's part of a parameter lies in another's, `shape`; None where it does not."""
    if not layout.shape:
        return None
    small, large = submodel_index_set(layout, smaller), submodel_index_set(layout, larger)
    if large.sizes != shape:
        return None
    inner = []
    for axis, length in enumerate(layout.shape):
        place = np.full(length, -1, np.intp)
        place[large.axes[axis]] = np.arange(large.sizes[axis])
        inner.append(as_slice(place[small.axes[axis]]))
    if any((to_array(places) < 0).any() for places in inner):
        return None
    return Block(shape, tuple(inner))


def spec_group(spec: SubModelSpec) -> dict[str, AnyArray]:
    """A spec as arrays."""
    return {name: np.array(kept, np.int32) for name, kept in spec.kept.items()}


def spec_of(layer: Groups) -> SubModelSpec:
    """The sub-model that a layer completes; raises `PeerError` where it does not say so."""
    arrays = layer.get(SPEC, {})
    try:
        return SubModelSpec(kept={name: _kept(arrays[name]) for name in arrays})
    except ValidationError as error:
        raise PeerError(f"a layer names no sub-model: {str(error)[:200]}") from error


def _kept(array: AnyArray) -> int | tuple[int, ...]:
    return tuple(array.tolist()) if array.ndim else int(array)


def first_holding(layer: Groups) -> Holding:
    """What the first layer of a chain holds by itself."""
    return Holding(spec_of(layer), {name: layer[name] for name in layer if name != SPEC})


def assemble(smaller: Holding, layer: Groups, channel_map: ChannelMap) -> Holding:
    """Put a layer around what the next smaller sub-model holds; arrays are made when they are asked for.

    Raises `PeerError` for a layer that does not fit.
    """
    spec = spec_of(layer)
    if not all(one.fits(channel_map) for one in (smaller.spec, spec)):
        raise PeerError("a layer is for channels that the network lacks")
    names = {*smaller.groups, *(name.removesuffix(ADDED) for name in layer if name != SPEC)}
    groups = {
        name: _Assembled(
            smaller.groups.get(name, {}),
            layer.get(name, {}),
            _blocks(layer.get(name + ADDED, {}), smaller, name, spec, channel_map),
            layer.get(name + ADDED, {}),
        )
        for name in sorted(names)
    }
    return Holding(spec, groups)


def _blocks(
    added: Mapping[str, AnyArray], smaller: Holding, group: str, spec: SubModelSpec, channel_map: ChannelMap
) -> dict[str, Block]:
    blocks = {}
    for name in added:
        layout, inner = channel_map.parameters.get(name), smaller.groups.get(group, {})
        if layout is None or name not in inner:
            raise PeerError(f"a layer adds to '{group}/{name}', of which there is nothing")
        block = block_of(layout, smaller.spec, spec, shape=submodel_index_set(layout, spec).sizes)
        dtype, given = kind_of(added, name)
        if block is None or (dtype, block.sizes) != kind_of(inner, name) or given != (block.starts[-1],):
            raise PeerError(f"a layer does not fit around '{group}/{name}'")
        blocks[name] = block
    return blocks


class _Assembled(KnownArrays):
    """One group: arrays that are whole in the layer, those that it adds to, and what was there before."""

    def __init__(
        self,
        smaller: Mapping[str, AnyArray],
        whole: Mapping[str, AnyArray],
        blocks: Mapping[str, Block],
        added: Mapping[str, AnyArray],
    ) -> None:
        self._smaller, self._whole, self._blocks, self._added = smaller, whole, blocks, added
        kinds = {
            **{name: kind_of(smaller, name) for name in smaller},
            **{name: kind_of(whole, name) for name in whole},
            **{name: (kind_of(added, name)[0], block.shape) for name, block in blocks.items()},
        }
        super().__init__(kinds)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Put together now."""
        if name not in self._blocks:
            return rows_of(self._whole if name in self._whole else self._smaller, name, start, stop)
        block = self._blocks[name]
        array = np.empty((stop - start, *block.shape[1:]), self.kind(name)[0])
        begin, end = int(block.starts[start]), int(block.starts[stop])
        array[block.is_added(start, stop)] = rows_of(self._added, name, begin, end)
        own, place = block.slice_rows(start, stop)
        if place.size:
            array[place.index] = read_rows(self._smaller, name, own)
        return array


def received_groups(task: Task, store: GroupStore, channel_map: ChannelMap) -> Groups:
    """What a task's layers, unpacked in the store, come to; arrays are read when they are asked for.

    A task without layers has its state in one piece, as blob `state`. A single frame is as it was encoded, of
    several the sum is.
    """
    if not task.layers:
        return FileGroups(store.path(task.blobs["state"].digest))
    frames = []
    for _, group in groupby(task.layers, key=lambda layer: layer.frame):
        layers = [FileGroups(store.path(task.blobs[layer.blob].digest)) for layer in group]
        held = first_holding(layers[0])
        for layer in layers[1:]:
            held = assemble(held, layer, channel_map)
        if held.spec != task.spec:
            raise PeerError("the layers of the task are those of another sub-model")
        frames.append(held.groups)
    return added_up(frames) if len(frames) > 1 else frames[0]
