"""A client's changes in global coordinates, computed a few rows at a time from what it sent.

Values and their positions are kept apart: a sub-model's values are never spread over a whole model.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.decoding import Decoded
from edge_client.pruning.index_sets import (
    AxisIndex,
    IndexSet,
    axis_key,
    check_spec,
    expect_shape,
    full_index_set,
    moved_axes,
    read_rows,
    to_array,
)
from edge_server.strategy.aggregation.blocks import as_rows
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, Array, Arrays, Kind, LazyArrays, kind_of, rows_of

# Which coordinates of the model the updates of a round cover, each and together.

Order = Mapping[str, Sequence[int]]


def checked_order(order: Order, channel_map: ChannelMap) -> Order:
    """The order in a small dtype; `InvariantError` unless it names every channel of its groups once."""
    check_spec(SubModelSpec(kept={group: tuple(map(int, old)) for group, old in order.items()}), channel_map)
    for group, old in order.items():
        if len(old) != channel_map.groups[group].channels:
            raise InvariantError(f"{group!r}: expected all {channel_map.groups[group].channels} channels")
    return {group: np.array(old, np.min_scalar_type(len(old))) for group, old in order.items()}  # type: ignore[misc]


class UpdateCoverage(Mapping[str, NDArray[np.bool_]]):
    """What an update covers of every parameter: as an `IndexSet`, or, asked for by name, as a mask."""

    def __init__(self, channel_map: ChannelMap, find: Callable[[str], IndexSet]) -> None:
        self.channel_map, self.index_set = channel_map, find

    def __getitem__(self, name: str) -> NDArray[np.bool_]:
        return self.index_set(name).mask.reshape(self.channel_map.parameters[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.channel_map.parameters)

    def __len__(self) -> int:
        return len(self.channel_map.parameters)

    def with_order(self, order: Order) -> "UpdateCoverage":

        def find(name: str) -> IndexSet:
            axes = moved_axes(self.channel_map.parameters[name], order)
            # Per reordered axis, the new position of each old one.
            return self.index_set(name).with_permutation(
                {axis: np.argsort(old) for axis, old in axes.items()}
            )

        return UpdateCoverage(self.channel_map, find)


def full_coverage(channel_map: ChannelMap) -> UpdateCoverage:
    return UpdateCoverage(channel_map, lambda name: full_index_set(channel_map.parameters[name].shape))


def intersection(index_sets: Sequence[IndexSet]) -> IndexSet:
    axes = zip(*(index_set.axes for index_set in index_sets), strict=True)
    return IndexSet(index_sets[0].shape, tuple(_intersect_places(places) for places in axes))


def _intersect_places(places: Iterable[AxisIndex]) -> AxisIndex:
    first, *others = places
    if all(isinstance(other, slice) for other in (first, *others)):
        low = max(part.start for part in (first, *others))  # type: ignore[union-attr]
        return slice(low, max(low, min(part.stop for part in (first, *others))))  # type: ignore[union-attr]
    kept = np.unique(to_array(first))
    for other in others:
        kept = np.intersect1d(kept, to_array(other))
    return kept


def sum_weights(index_sets: Sequence[IndexSet], weights: Sequence[float]) -> NDArray[np.float64]:
    """Per coordinate the sum of the weights of the index sets that contain it, added in their order.

    It broadcasts to the full shape: one number if all index sets are whole. Positions contained in the same
    index sets share one number until the end, which is cheap for many equal positions.
    """
    # Index sets of one sub-model are often the same object, and then looked at once.
    distinct = {id(index_set): index_set for index_set in index_sets}
    if all(index_set.whole for index_set in distinct.values()):
        return np.array(sum(map(float, weights), 0.0))
    unlike = list(distinct.values())
    shape = unlike[0].shape
    axes = [_classes([index_set.axes[axis] for index_set in unlike], n) for axis, n in enumerate(shape)]
    grid = np.zeros([int(ids.max(initial=-1)) + 1 for ids, _ in axes])
    cells = {key: np.ix_(*(members[k] for _, members in axes)) for k, key in enumerate(distinct)}
    for index_set, weight in zip(index_sets, weights, strict=True):
        grid[cells[id(index_set)]] += weight
    return grid[np.ix_(*(ids for ids, _ in axes))]


def _classes(all_places: Sequence[AxisIndex], length: int) -> tuple[NDArray[np.intp], list[NDArray[np.intp]]]:
    """The class of every position (positions in the same lists are one class), and each list's classes."""
    alike: dict[Any, AxisIndex] = {axis_key(places): places for places in all_places}
    ids = np.zeros(length, np.intp)
    for places in alike.values():
        split = 2 * ids
        split[places] += 1
        ids = np.unique(split, return_inverse=True)[1]
    members = {key: np.unique(ids[places]) for key, places in alike.items()}
    return ids, [members[axis_key(places)] for places in all_places]


FLOAT = np.dtype(np.float32)


class DeltaRows(NamedTuple):
    """Rows of a parameter's changes: values, and their positions in these rows; 0 elsewhere."""

    values: Array
    place: IndexSet

    def within(self, reach: IndexSet) -> "DeltaRows":
        """The rows restricted to an index set; either these rows or the index set is whole."""
        if reach.whole or not self.place.whole:
            return self
        return DeltaRows(reach.take(self.values), reach)

    def in_runs(self) -> "DeltaRows":
        """The same rows with zeros in between, so that positions are slices, to which numpy adds faster."""
        values, axes = self.values, list(self.place.axes)
        for axis, places in enumerate(axes):
            if isinstance(places, slice):
                continue
            length, count = self.place.shape[axis], len(places)
            which = np.full(length, count)
            which[places] = np.arange(count)
            if count < length:
                none = np.zeros((*values.shape[:axis], 1, *values.shape[axis + 1 :]), values.dtype)
                values = np.concatenate([values, none], axis)
            values, axes[axis] = np.take(values, which, axis), slice(0, length)
        return DeltaRows(values, IndexSet(self.place.shape, tuple(axes)))


class CodedRows(NamedTuple):
    """Rows as sent: codes, a scale per row to multiply them by, and their positions."""

    codes: AnyArray
    scales: AnyArray
    place: IndexSet


class Deltas(LazyArrays):
    """Changes of every parameter, of the full shapes P."""

    def __init__(self, channel_map: ChannelMap) -> None:
        self.channel_map = channel_map

    @abstractmethod
    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        """Rows `start` to `stop - 1`."""

    def with_order(self, order: Order) -> "Deltas":
        """The changes after channels have been put in this order."""
        raise InvariantError("changes whose channels were moved are not moved again")

    def kind(self, name: str) -> Kind:
        return FLOAT, self.channel_map.parameters[name].shape

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Dense rows, with zeros where there is no change."""
        values, place = self.part(name, start, stop)
        if not place.whole:
            values, held = np.zeros(place.shape, values.dtype), values
            values[place.index] = held
        return values if self.kind(name)[1] else values.reshape(())

    def __iter__(self) -> Iterator[str]:
        # In the map's order, whatever a file's order: sums over parameters then agree to the bit.
        return iter(self.channel_map.parameters)

    def __len__(self) -> int:
        return len(self.channel_map.parameters)


class SubModelDeltas(Deltas):
    """What a client sent, at the positions of its sub-model; `InvariantError` for shapes that do not fit."""

    def __init__(self, arrays: Arrays, coverage: UpdateCoverage, channel_map: ChannelMap) -> None:
        super().__init__(channel_map)
        self._arrays, self.coverage = arrays, coverage

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        reach = self.coverage.index_set(name)
        own, place = reach.slice_rows(start, stop)
        if not place.size:
            return DeltaRows(np.zeros(place.sizes, FLOAT), place)
        self._expect(name, reach)
        return DeltaRows(read_rows(self._arrays, name, own).reshape(place.sizes), place)

    def coded_rows(self, name: str, own: AxisIndex, place: IndexSet) -> CodedRows | None:
        """The sub-model's rows `own`, which belong at `place`, as sent; None if not codes, or not a slice."""
        if not isinstance(self._arrays, Decoded) or not isinstance(own, slice) or not place.size:
            return None
        if not all(isinstance(places, slice) for places in place.axes) or not self._arrays.is_scaled(name):
            return None
        self._expect(name, self.coverage.index_set(name))
        return CodedRows(*self._arrays.coded_rows(name, own.start, own.stop), place)

    def _expect(self, name: str, reach: IndexSet) -> None:
        expect_shape(name, kind_of(self._arrays, name)[1] or (1,), reach.sizes)

    def with_order(self, order: Order) -> Deltas:
        return SubModelDeltas(self._arrays, self.coverage.with_order(order), self.channel_map)


class ScaledDeltas(Deltas):
    """Changes times a number, except for `exempt` parameters."""

    def __init__(
        self, changes: Deltas, factor: float, *, exempt: Callable[[str], bool] = lambda name: False
    ) -> None:
        super().__init__(changes.channel_map)
        self._changes, self._factor, self._exempt = changes, factor, exempt

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        values, place = self._changes.part(name, start, stop)
        return DeltaRows(values if self._exempt(name) else self._factor * values, place)

    def with_order(self, order: Order) -> Deltas:
        return ScaledDeltas(self._changes.with_order(order), self._factor, exempt=self._exempt)


class ReorderedModelDeltas(Deltas):
    """The difference between a client's model w + delta, with its channels reordered, and w."""

    def __init__(self, params: Arrays, moved: Deltas, order: Order, channel_map: ChannelMap) -> None:
        super().__init__(channel_map)
        self._params, self._moved, self._order = params, moved, order

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        """Whole rows: w itself is reordered, too."""
        param = as_rows(self._params[name])
        model = _take_rows(param, moved_axes(self.channel_map.parameters[name], self._order), start, stop)
        values, place = self._moved.part(name, start, stop).in_runs()
        model[place.index] += values
        return DeltaRows(model - param[start:stop], full_index_set(model.shape))


class RestrictedDeltas(Deltas):
    """Changes restricted to a coverage, 0 elsewhere."""

    def __init__(self, changes: Deltas, coverage: UpdateCoverage) -> None:
        super().__init__(changes.channel_map)
        self._changes, self._coverage = changes, coverage

    def part(self, name: str, start: int, stop: int) -> DeltaRows:
        reach = self._coverage.index_set(name).slice_rows(start, stop)[1]
        return self._changes.part(name, start, stop).within(reach)

    def with_order(self, order: Order) -> Deltas:
        return RestrictedDeltas(self._changes.with_order(order), self._coverage.with_order(order))


def delta_rows(changes: Arrays, name: str, start: int, stop: int) -> DeltaRows:
    """Rows of changes of any kind; plain arrays have whole rows."""
    if isinstance(changes, Deltas):
        return changes.part(name, start, stop)
    values = as_rows(rows_of(changes, name, start, stop))
    return DeltaRows(values, full_index_set(values.shape))


def _take_rows(array: Array, axes: Mapping[int, AxisIndex], start: int, stop: int) -> Array:
    """A copy of rows of an array whose positions have been reordered."""
    taken = array[axes[0][start:stop]] if 0 in axes else array[start:stop].copy()  # type: ignore[index]
    for axis, places in axes.items():
        if axis > 0:
            taken = np.take(taken, places, axis)  # type: ignore[arg-type]
    return taken


def as_deltas(changes: Arrays, channel_map: ChannelMap) -> Deltas:
    """The changes as `Deltas`; plain arrays have the full shapes."""
    if isinstance(changes, Deltas):
        return changes
    return SubModelDeltas(changes, full_coverage(channel_map), channel_map)
