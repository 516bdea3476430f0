"""Index sets: the coordinates that a sub-model holds of a parameter, as indices along each axis.

Arrays are sliced to a sub-model and put back (`extract`, `expand`), without torch. Global arrays have all
channels; a sub-model's have the kept channels in the order of its spec.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import InvariantError
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


Arrays = Mapping[str, NDArray[Any]]
Positions = NDArray[np.intp]


def extract(arrays: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> dict[str, NDArray[Any]]:
    """Slice any global arrays to the channels of `spec`, without copying unchanged arrays.

    Raises `InvariantError` for a name, shape or spec that does not fit.
    """
    check_spec(spec, channel_map)
    cut = {}
    for name, array in arrays.items():
        layout = _layout(name, channel_map)
        expect_shape(name, array.shape, layout.shape)
        for axis, positions in cut_axes(layout, spec).items():
            array = np.take(array, positions, axis)
        cut[name] = array
    return cut


def expand(
    arrays: Arrays, spec: SubModelSpec, channel_map: ChannelMap
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.bool_]]]:
    """A sub-model's arrays in global coordinates, with zeros elsewhere, and the masks of their coordinates.

    Raises `InvariantError` for a name, shape or spec that does not fit.
    """
    check_spec(spec, channel_map)
    full: dict[str, NDArray[Any]] = {}
    coverage: dict[str, NDArray[np.bool_]] = {}
    for name, array in arrays.items():
        layout = _layout(name, channel_map)
        expect_shape(name, array.shape, _cut_shape(layout, spec))
        full[name], coverage[name] = _spread(array, layout, spec)
    return full, coverage


def permute(
    arrays: Arrays, order: Mapping[str, Sequence[int]], channel_map: ChannelMap
) -> dict[str, NDArray[Any]]:
    """Reorder channels in all arrays: channel i of a group becomes its old channel `order[group][i]`.

    The network's function does not change.
    """
    spec = SubModelSpec(kept={group: tuple(int(i) for i in places) for group, places in order.items()})
    check_spec(spec, channel_map)
    for group in spec.kept:
        expect_shape(group, (spec.count(group, 0),), (channel_map.groups[group].channels,))
    return extract(arrays, spec, channel_map)


def expected_shapes(spec: SubModelSpec, channel_map: ChannelMap) -> dict[str, tuple[int, ...]]:
    check_spec(spec, channel_map)
    return {name: _cut_shape(layout, spec) for name, layout in channel_map.parameters.items()}


def submodel_map(channel_map: ChannelMap, spec: SubModelSpec) -> ChannelMap:
    if not spec.kept:
        return channel_map
    counts = {name: spec.count(name, group.channels) for name, group in channel_map.groups.items()}

    def cut(segment: Segment) -> Segment:
        return segment.model_copy(update={"channels": counts[segment.group]}) if segment.group else segment

    parameters = {}
    for name, layout in channel_map.parameters.items():
        axes = {axis: tuple(map(cut, segments)) for axis, segments in layout.axes.items()}
        parameters[name] = ParameterLayout(shape=_cut_shape(layout, spec), axes=axes)
    groups = channel_map.groups.items()
    smaller = {name: group.model_copy(update={"channels": counts[name]}) for name, group in groups}
    return ChannelMap(groups=smaller, parameters=parameters)


def cut_axes(layout: ParameterLayout, spec: SubModelSpec) -> dict[int, Positions]:
    """The kept positions on each axis of a parameter that is cut or reordered."""
    return moved_axes(layout, spec.kept)


def moved_axes(layout: ParameterLayout, kept: Mapping[str, int | Sequence[int]]) -> dict[int, Positions]:
    """The old position of each new one on each axis that changes: see `permute`."""
    positions = {axis: _positions(segments, kept) for axis, segments in layout.axes.items()}
    same = {axis: np.arange(layout.shape[axis]) for axis in positions}
    return {axis: new for axis, new in positions.items() if not np.array_equal(new, same[axis])}


def check_spec(spec: SubModelSpec, channel_map: ChannelMap) -> None:
    """Raise `InvariantError` unless `spec` fits the map and keeps blocks whole."""
    if not spec.fits(channel_map):
        raise InvariantError(f"sub-model {dict(spec.kept)} names groups or channels that the map lacks")
    for name in spec.kept:
        group = channel_map.groups[name]
        blocks = np.array(spec.indices(name, group.channels)) // group.multiple
        runs = blocks[: len(blocks) // group.multiple * group.multiple].reshape(-1, group.multiple)
        if runs.size != blocks.size or (runs != runs[:, :1]).any():
            raise InvariantError(f"group {name!r}: expected whole blocks of {group.multiple} channels")


def _positions(segments: Sequence[Segment], kept: Mapping[str, int | Sequence[int]]) -> Positions:
    start, runs = 0, []
    for segment in segments:
        which = kept.get(segment.group, segment.channels) if segment.group else segment.channels
        channels = np.arange(which) if isinstance(which, int) else np.array(which, np.intp)
        runs.append(start + (channels[:, None] * segment.repeat + np.arange(segment.repeat)).ravel())
        start += segment.positions
    return np.concatenate(runs)


def _cut_shape(layout: ParameterLayout, spec: SubModelSpec) -> tuple[int, ...]:
    if not spec.kept:
        return layout.shape
    shape = list(layout.shape)
    for axis, segments in layout.axes.items():
        counts = (spec.count(s.group, s.channels) if s.group else s.channels for s in segments)
        shape[axis] = sum(s.repeat * count for s, count in zip(segments, counts, strict=True))
    return tuple(shape)


def _spread(
    array: NDArray[Any], layout: ParameterLayout, spec: SubModelSpec
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    cut = cut_axes(layout, spec)
    if not cut:
        return array, np.ones(layout.shape, bool)
    index = np.ix_(*(cut.get(axis, np.arange(length)) for axis, length in enumerate(layout.shape)))
    full, held = np.zeros(layout.shape, array.dtype), np.zeros(layout.shape, bool)
    full[index], held[index] = array, True
    return full, held


def _layout(name: str, channel_map: ChannelMap) -> ParameterLayout:
    if name not in channel_map.parameters:
        raise InvariantError(f"parameter {name!r} is not in the channel map")
    return channel_map.parameters[name]


def expect_shape(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if tuple(shape) != tuple(expected):
        raise InvariantError(f"{name!r}: expected shape {tuple(expected)}, got {tuple(shape)}")
