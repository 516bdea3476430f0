"""A state in increments, like scalable video: the smallest sub-model, then what each larger one adds.

An increment ("layer" on the wire) is a blob of parameter groups; its group `spec+` names the sub-model that
it completes. An array equal to the smaller sub-model's is omitted. If only the values outside the smaller
array are sent, they are in the group `{group}+`, flat, row by row. Any other array is whole in its own group.
"""

import math
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from edge_client.compression import downlink, zstd
from edge_client.pruning.index_sets import IndexSet, as_slice, read_rows, submodel_index_set, to_array
from edge_client.storage.blob_store import BlobStore
from schemas import errors, messages
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors.arrays import AnyArray, Groups, KnownArrays, kind_of, rows_of
from schemas.tensors.files import FileGroups


class GroupStore(Protocol):
    """Finds the files of blobs."""

    def blob_path(self, digest: str) -> Path:
        """The file with the (unpacked) content of a blob."""
        ...


@dataclass(frozen=True)
class Unpacked:
    """A store's blobs, some of which are unpacked into other files."""

    store: GroupStore
    files: Mapping[str, Path]

    def blob_path(self, digest: str) -> Path:
        return self.files.get(digest) or self.store.blob_path(digest)


@contextmanager
def unpack_blobs(task: messages.Task, store: BlobStore) -> Iterator[GroupStore]:
    """The blobs of a task, with its packed layers unpacked until the block ends.

    Raises `PeerError` for a damaged layer, or one that is larger than the task states.
    """
    packed = [layer for layer in task.layers if layer.unpacked is not None]
    sizes = {task.blobs[layer.blob].digest: layer.unpacked for layer in packed}
    owner = f"{os.getpid()}.{threading.get_ident()}"
    files = {digest: store.directory / f".unpacked-{digest}.{owner}.part" for digest in sizes}
    try:
        for digest, path in files.items():
            with path.open("wb") as file:
                zstd.unpack(store.blob_path(digest), file, limit=sizes[digest])
        yield Unpacked(store, files)
    finally:
        for path in files.values():
            path.unlink(missing_ok=True)


ADDED = "+"
SPEC = "spec+"  # the completed sub-model's channels: the length of a prefix, or a list of indices


@dataclass(frozen=True, eq=False)
class Holding:
    """A sub-model and its groups, which may be lazy."""

    spec: SubModelSpec
    groups: Groups


class Block(IndexSet):
    """The coordinates of a smaller sub-model's array in a larger one's of `shape`."""

    @cached_property
    def starts(self) -> NDArray[np.intp]:
        """The offset of each row's added values among all added values, and the end."""
        row = math.prod(self.shape[1:])
        counts = np.full(self.shape[0], row, np.intp)
        counts[self.axes[0]] = row - math.prod(self.sizes[1:])
        return np.concatenate([np.zeros(1, np.intp), np.cumsum(counts)])

    def is_added(self, start: int, stop: int) -> AnyArray:
        """A mask of the values that the smaller array lacks in rows `start` to `stop - 1`."""
        return ~self.slice_rows(start, stop)[1].mask


def block_of(
    layout: ParameterLayout, smaller: SubModelSpec, larger: SubModelSpec, *, shape: tuple[int, ...]
) -> Block | None:
    """The block of a smaller sub-model in a larger one's array of `shape`; None if it is not nested."""
    if not layout.shape:
        return None
    small, large = submodel_index_set(layout, smaller), submodel_index_set(layout, larger)
    if large.sizes != shape:
        return None
    inner = []
    for axis, length in enumerate(layout.shape):
        positions = np.full(length, -1, np.intp)
        positions[large.axes[axis]] = np.arange(large.sizes[axis])
        inner.append(as_slice(positions[small.axes[axis]]))
    if any((to_array(index) < 0).any() for index in inner):
        return None
    return Block(shape, tuple(inner))


def spec_group(spec: SubModelSpec) -> dict[str, AnyArray]:
    return {name: np.array(kept, np.int32) for name, kept in spec.kept.items()}


def spec_of(layer: Groups) -> SubModelSpec:
    """The sub-model that an increment completes; raises `PeerError` if it names none."""
    arrays = layer.get(SPEC, {})
    try:
        return SubModelSpec(kept={name: _parse_kept(arrays[name]) for name in arrays})
    except ValidationError as error:
        raise errors.PeerError(f"a layer names no sub-model: {str(error)[:200]}") from error


def _parse_kept(array: AnyArray) -> int | tuple[int, ...]:
    return tuple(array.tolist()) if array.ndim else int(array)


def first_holding(layer: Groups) -> Holding:
    return Holding(spec_of(layer), {name: layer[name] for name in layer if name != SPEC})


def assemble(smaller: Holding, layer: Groups, channel_map: ChannelMap) -> Holding:
    """Add an increment to the next smaller sub-model; arrays are computed when read.

    Raises `PeerError` for an increment that does not fit.
    """
    spec = spec_of(layer)
    if not all(held.fits(channel_map) for held in (smaller.spec, spec)):
        raise errors.PeerError("a layer is for channels that the network lacks")
    names = {*smaller.groups, *(name.removesuffix(ADDED) for name in layer if name != SPEC)}
    groups = {}
    for name in sorted(names):
        added = layer.get(name + ADDED, {})
        blocks = _blocks(added, smaller, name, spec, channel_map)
        groups[name] = _Assembled(smaller.groups.get(name, {}), layer.get(name, {}), blocks, added)
    return Holding(spec, groups)


def _blocks(
    added: Mapping[str, AnyArray], smaller: Holding, group: str, spec: SubModelSpec, channel_map: ChannelMap
) -> dict[str, Block]:
    blocks = {}
    for name in added:
        layout, inner = channel_map.parameters.get(name), smaller.groups.get(group, {})
        if layout is None or name not in inner:
            raise errors.PeerError(f"a layer adds to '{group}/{name}', of which there is nothing")
        block = block_of(layout, smaller.spec, spec, shape=submodel_index_set(layout, spec).sizes)
        dtype, given = kind_of(added, name)
        if block is None or (dtype, block.sizes) != kind_of(inner, name) or given != (block.starts[-1],):
            raise errors.PeerError(f"a layer does not fit around '{group}/{name}'")
        blocks[name] = block
    return blocks


class _Assembled(KnownArrays):
    """A group: arrays that are whole in the increment, arrays that it extends, and unchanged arrays."""

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


def received_groups(
    task: messages.Task, store: GroupStore, channel_map: ChannelMap, *, frozen: bool = False
) -> Groups:
    """The state that a task's unpacked increments, or its blob `state`, add up to; read lazily.

    A single frame stays encoded; several frames are decoded and added. With `frozen` it is what no device
    trains, by the increments of that.
    """
    increments = task.frozen if frozen else task.layers
    if not increments:
        return FileGroups(store.blob_path(task.blobs["state"].digest))
    frames = []
    for _, group in groupby(increments, key=lambda layer: layer.frame):
        layers = [FileGroups(store.blob_path(task.blobs[layer.blob].digest)) for layer in group]
        held = first_holding(layers[0])
        for layer in layers[1:]:
            held = assemble(held, layer, channel_map)
        # What is frozen has the channels of its own arrays alone.
        groups = channel_map.groups_of([*held.groups["model"]]) if frozen else ()
        if held.spec != (task.spec.of_groups(groups) if frozen else task.spec):
            raise errors.PeerError("the layers of the task are those of another sub-model")
        frames.append(held.groups)
    return downlink.added_up(frames) if len(frames) > 1 else frames[0]
