"""Index sets: the coordinates that a sub-model holds of a parameter, as indices along each axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.slicing import cut_axes
from schemas.submodel import ParameterLayout, Segment, SubModelSpec
from schemas.tensors.arrays import AnyArray

AxisIndex = slice | NDArray[np.intp]  # indices along an axis: a slice, or an array in any order


@dataclass(frozen=True, eq=False)
class IndexSet:
    """Every combination of the indices `axes` in an array of `shape`; a scalar has the shape (1,)."""

    shape: tuple[int, ...]
    axes: tuple[AxisIndex, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of indices along each axis: the shape of the values that are taken."""
        return tuple(i.stop - i.start if isinstance(i, slice) else len(i) for i in self.axes)

    @property
    def size(self) -> int:
        return math.prod(self.sizes)

    @property
    def whole(self) -> bool:
        """Whether the set holds all coordinates in their order."""
        return self.sizes == self.shape and all(isinstance(index, slice) for index in self.axes)

    @cached_property
    def index(self) -> tuple[Any, ...]:
        if all(isinstance(index, slice) for index in self.axes):
            return self.axes
        return np.ix_(*(to_array(index) for index in self.axes))

    @property
    def key(self) -> object:
        """Equal for index sets of one shape that hold the same coordinates in any order."""
        return tuple(axis_key(index) for index in self.axes)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """A mask of `shape`, true at the coordinates of the set."""
        held = np.zeros(self.shape, bool)
        held[self.index] = True
        return held

    def take(self, array: AnyArray) -> AnyArray:
        """The values of an array of `shape` at the coordinates of the set, of shape `sizes`."""
        array = array[tuple(index if isinstance(index, slice) else slice(None) for index in self.axes)]
        for axis, index in enumerate(self.axes):
            if not isinstance(index, slice):
                array = np.take(array, index, axis)
        return array

    def slice_rows(self, start: int, stop: int) -> "tuple[AxisIndex, IndexSet]":
        """The part in rows `start` to `stop - 1`: its rows among the values taken, its index set there."""
        shape, first = (stop - start, *self.shape[1:]), self.axes[0]
        if isinstance(first, slice):
            low = max(start, first.start)
            high = max(low, min(stop, first.stop))
            own: AxisIndex = slice(low - first.start, high - first.start)
            return own, IndexSet(shape, (slice(low - start, high - start), *self.axes[1:]))
        own = np.flatnonzero((first >= start) & (first < stop))
        return own, IndexSet(shape, (first[own] - start, *self.axes[1:]))

    def with_permutation(self, inverse: Mapping[int, NDArray[np.intp]]) -> "IndexSet":
        """The same values after a permutation that moves index c of an axis to `inverse[axis][c]`."""
        axes = list(self.axes)
        for axis, places in inverse.items():
            axes[axis] = as_slice(places[to_array(axes[axis])])
        return IndexSet(self.shape, tuple(axes))


def full_index_set(shape: tuple[int, ...]) -> IndexSet:
    shape = shape or (1,)
    return IndexSet(shape, tuple(slice(0, length) for length in shape))


def empty_index_set(shape: tuple[int, ...]) -> IndexSet:
    full = full_index_set(shape)
    return IndexSet(full.shape, (slice(0, 0), *full.axes[1:]))


def submodel_index_set(layout: ParameterLayout, spec: SubModelSpec) -> IndexSet:
    """The coordinates that a sub-model holds of a parameter, in the order of the sub-model's channels."""
    full = full_index_set(layout.shape)
    if not layout.axes or not spec.kept:
        return full
    kept = {axis: _leading(segments, spec) for axis, segments in layout.axes.items()}
    if None in kept.values():
        kept |= {axis: as_slice(indices) for axis, indices in cut_axes(layout, spec).items()}
    axes = (whole if (index := kept.get(axis)) is None else index for axis, whole in enumerate(full.axes))
    return IndexSet(full.shape, tuple(axes))


def _leading(segments: Sequence[Segment], spec: SubModelSpec) -> AxisIndex | None:
    """A fast path: the slice of an axis of a single group that keeps its leading channels."""
    (segment, *others), kept = segments, None
    if not others:
        kept = spec.kept.get(segment.group, segment.channels) if segment.group else segment.channels
    return slice(0, kept * segment.repeat) if isinstance(kept, int) else None


def to_array(index: AxisIndex) -> NDArray[np.intp]:
    return np.arange(index.start, index.stop) if isinstance(index, slice) else index


def slice_index(index: AxisIndex, start: int, stop: int) -> AxisIndex:
    """Entries `start` to `stop - 1` of an index."""
    return slice(index.start + start, index.start + stop) if isinstance(index, slice) else index[start:stop]


def as_slice(indices: NDArray[np.intp]) -> AxisIndex:
    """The indices as a slice if they are consecutive."""
    if not len(indices):
        return slice(0, 0)
    first, last = int(indices[0]), int(indices[-1])
    if last - first == len(indices) - 1 and (np.diff(indices) == 1).all():
        return slice(first, last + 1)
    return indices


def axis_key(index: AxisIndex) -> Any:
    return (index.start, index.stop) if isinstance(index, slice) else np.sort(index).tobytes()
