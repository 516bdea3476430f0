"""A state in layers, as in scalable video: what the smallest sub-model holds, then what each larger one adds.

A layer is a blob of parameter groups. It says itself which sub-model it completes (group `spec+`). An array
is left out where it is that of the smaller sub-model; is in the group `{group}+`, flat, row by row, where
only its values outside the smaller one's are sent; and is whole in its own group otherwise. So nothing is
lost, whatever the groups' rules are and whatever the types.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from pydantic import ValidationError

from edge_client.codecs.frames import added_up
from edge_client.codecs.unpacking import Shelf
from edge_client.excerpt import picked_rows
from edge_client.slicing import Positions, cut_axes
from schemas.blobs import Groups, SpooledGroups
from schemas.errors import PeerError
from schemas.messages import Task
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors import AnyArray, Kind, LazyArrays, kind_of, rows_of

ADDED = "+"
SPEC = "spec+"
"""The group that says which channels a layer completes: a number per prefix, the indices of a list."""


@dataclass(frozen=True, eq=False)
class Holding:
    """What a sub-model holds: its groups, which may be lazy."""

    spec: SubModelSpec
    groups: Groups


@dataclass(frozen=True, eq=False)
class Block:
    """Where a smaller sub-model's array lies in a larger one's of `shape`: its places along each axis."""

    shape: tuple[int, ...]
    inner: tuple[Positions, ...]

    @property
    def inner_shape(self) -> tuple[int, ...]:
        """The shape of the smaller array."""
        return tuple(len(places) for places in self.inner)

    @property
    def is_all(self) -> bool:
        """Whether the larger array is the smaller one, value by value."""
        return self.inner_shape == self.shape and all(
            np.array_equal(places, np.arange(len(places))) for places in self.inner
        )

    @cached_property
    def starts(self) -> Positions:
        """Where each row's added values begin among all that are added, and where they end."""
        row = math.prod(self.shape[1:])
        counts = np.full(self.shape[0], row, np.intp)
        counts[self.inner[0]] = row - math.prod(self.inner_shape[1:])
        return np.concatenate([np.zeros(1, np.intp), np.cumsum(counts)])

    def is_added(self, start: int, stop: int) -> AnyArray:
        """Of rows `start` to `stop - 1`, which values the smaller array lacks."""
        added = np.ones((stop - start, *self.shape[1:]), bool)
        rows = self.inner[0][self.among(start, stop)] - start
        added[crossed(rows, *self.inner[1:])] = False
        return added

    def among(self, start: int, stop: int) -> Positions:
        """The smaller array's rows that lie in rows `start` to `stop - 1`."""
        return np.flatnonzero((self.inner[0] >= start) & (self.inner[0] < stop))


def crossed(*places: Positions) -> tuple[Any, ...]:
    """What to index with for these places along each axis; slices, which are far faster, for a prefix."""
    if all(len(one) and np.array_equal(one, np.arange(one[0], one[0] + len(one))) for one in places):
        return tuple(slice(int(one[0]), int(one[0]) + len(one)) for one in places)
    return np.ix_(*places)


def block_of(
    layout: ParameterLayout, smaller: SubModelSpec, larger: SubModelSpec, *, shape: tuple[int, ...]
) -> Block | None:
    """Where one sub-model's part of a parameter lies in another's, `shape`; None where it does not."""
    if not layout.shape:
        return None
    small, large = cut_axes(layout, smaller), cut_axes(layout, larger)
    inner = []
    for axis, length in enumerate(layout.shape):
        place = np.full(length, -1, np.intp)
        held = large.get(axis, np.arange(length))
        place[held] = np.arange(len(held))
        inner.append(place[small.get(axis, np.arange(length))])
        if len(held) != shape[axis] or (inner[-1] < 0).any():
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
    if not spec.fits(channel_map):
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
        cut = cut_axes(layout, spec)
        shape = tuple(len(cut[axis]) if axis in cut else n for axis, n in enumerate(layout.shape))
        block = block_of(layout, smaller.spec, spec, shape=shape)
        dtype, given = kind_of(added, name)
        if (
            block is None
            or (dtype, block.inner_shape) != kind_of(inner, name)
            or given != (block.starts[-1],)
        ):
            raise PeerError(f"a layer does not fit around '{group}/{name}'")
        blocks[name] = block
    return blocks


class _Assembled(LazyArrays):
    """One group: arrays that are whole in the layer, those that it adds to, and what was there before."""

    def __init__(
        self,
        smaller: Mapping[str, AnyArray],
        whole: Mapping[str, AnyArray],
        blocks: Mapping[str, Block],
        added: Mapping[str, AnyArray],
    ) -> None:
        self._smaller, self._whole, self._blocks, self._added = smaller, whole, blocks, added
        self._names = tuple(dict.fromkeys((*smaller, *whole)))

    def kind(self, name: str) -> Kind:
        """As the layer says, or else the smaller sub-model."""
        if name in self._blocks:
            return kind_of(self._added, name)[0], self._blocks[name].shape
        return kind_of(self._whole if name in self._whole else self._smaller, name)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Put together now."""
        if name not in self._blocks:
            return rows_of(self._whole if name in self._whole else self._smaller, name, start, stop)
        block = self._blocks[name]
        array = np.empty((stop - start, *block.shape[1:]), kind_of(self._added, name)[0])
        begin, end = int(block.starts[start]), int(block.starts[stop])
        array[block.is_added(start, stop)] = rows_of(self._added, name, begin, end)
        among = block.among(start, stop)
        if among.size:
            inner = picked_rows(self._smaller, name, among)
            array[crossed(block.inner[0][among] - start, *block.inner[1:])] = inner
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def received_groups(task: Task, store: Shelf, channel_map: ChannelMap) -> Groups:
    """What a task's layers, unpacked in the store, come to; arrays are read when they are asked for.

    A task without layers has its state in one piece, as blob `state`. A single frame is as it was encoded, of
    several the sum is.
    """
    if not task.layers:
        return SpooledGroups(store.path(task.blobs["state"].digest))
    frames = []
    for _, group in groupby(task.layers, key=lambda layer: layer.frame):
        layers = [SpooledGroups(store.path(task.blobs[layer.blob].digest)) for layer in group]
        held = first_holding(layers[0])
        for layer in layers[1:]:
            held = assemble(held, layer, channel_map)
        if held.spec != task.spec:
            raise PeerError("the layers of the task are those of another sub-model")
        frames.append(held.groups)
    return added_up(frames) if len(frames) > 1 else frames[0]
