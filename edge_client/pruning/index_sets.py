"""Index sets: the coordinates that a sub-model holds of a parameter, as indices along each axis."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.slicing import check_spec, cut_axes, expect_shape
from schemas.submodel import ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.arrays import AnyArray, ComputedArrays, Kind, LazyArrays, kind_of, rows_of

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


# Slices arrays to a sub-model block by block, like `slicing.extract` but without a copy of the whole.
SPAN_BYTES = 256 * 1024  # rows that are not contiguous are read in blocks of at most this many bytes


class LazySlice(ComputedArrays):
    """Global arrays sliced to a sub-model; an array that is no parameter stays whole.

    Raises `InvariantError` for a spec or a shape that does not fit.
    """

    def __init__(self, arrays: Mapping[str, AnyArray], spec: SubModelSpec, channel_map: ChannelMap) -> None:
        check_spec(spec, channel_map)
        index_sets: dict[str, IndexSet] = {}
        kinds: dict[str, Kind] = {}
        for name in arrays:
            layout, (dtype, shape) = channel_map.parameters.get(name), kind_of(arrays, name)
            if layout is not None:
                expect_shape(name, shape, layout.shape)
            index_sets[name] = full_index_set(shape) if layout is None else submodel_index_set(layout, spec)
            kinds[name] = dtype, index_sets[name].sizes if shape else ()
        super().__init__(kinds, partial(sliced_rows, arrays, index_sets))


def sliced_rows(
    arrays: Mapping[str, AnyArray], index_sets: Mapping[str, IndexSet], name: str, start: int, stop: int
) -> AnyArray:
    first, *others = index_sets[name].axes
    rows = read_rows(arrays, name, slice_index(first, start, stop))
    return IndexSet(rows.shape, (slice(0, len(rows)), *others)).take(rows) if rows.ndim else rows


def read_rows(arrays: Mapping[str, AnyArray], name: str, wanted: AxisIndex) -> AnyArray:
    """The wanted rows of an array in the order of the index; few of the rows between them are read."""
    if isinstance(wanted, slice):
        return rows_of(arrays, name, wanted.start, wanted.stop)
    if not isinstance(arrays, LazyArrays):
        return arrays[name][wanted]
    dtype, shape = arrays.kind(name)
    span = max(1, SPAN_BYTES // max(1, dtype.itemsize * math.prod(shape[1:])))
    order = np.argsort(wanted)
    ascending = wanted[order]
    taken, begin = np.empty((len(wanted), *shape[1:]), dtype), 0
    while begin < len(wanted):
        end = int(np.searchsorted(ascending, ascending[begin] + span))
        first = int(ascending[begin])
        block = arrays.rows(name, first, int(ascending[end - 1]) + 1)
        taken[order[begin:end]] = block[ascending[begin:end] - first]
        begin = end
    return taken
