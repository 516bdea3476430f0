"""Which coordinates of a parameter are meant: some positions along every axis, in every combination.

Sub-models are cut along axes, so nobody needs a mask of a parameter's size to say what one of them holds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.slicing import check, cut_axes, moved_axes
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors import AnyArray

Places = slice | NDArray[np.intp]
"""Positions along an axis: a run, or a list in any order."""
Order = Mapping[str, Sequence[int]]


@dataclass(frozen=True, eq=False)
class Reach:
    """`axes` are the places along each axis of an array of `shape`; a scalar counts as one row of one."""

    shape: tuple[int, ...]
    axes: tuple[Places, ...]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The shape of the values that stand there, [places along axis 0, along axis 1, ...]."""
        return tuple(
            places.stop - places.start if isinstance(places, slice) else len(places) for places in self.axes
        )

    @property
    def size(self) -> int:
        """How many coordinates."""
        return math.prod(self.sizes)

    @property
    def whole(self) -> bool:
        """Whether these are all, in their order."""
        return self.sizes == self.shape and all(isinstance(places, slice) for places in self.axes)

    @cached_property
    def index(self) -> tuple[Any, ...]:
        """What picks the coordinates out of an array of `shape`."""
        if all(isinstance(places, slice) for places in self.axes):
            return self.axes
        return np.ix_(*(listed(places) for places in self.axes))

    @property
    def key(self) -> object:
        """Equal for those of one shape that mean the same coordinates."""
        return tuple(_key(places) for places in self.axes)

    @property
    def mask(self) -> NDArray[np.bool_]:
        """True where a coordinate is meant, of the full shape."""
        held = np.zeros(self.shape, bool)
        held[self.index] = True
        return held

    def of(self, array: AnyArray) -> AnyArray:
        """What an array of `shape` has there, [places along axis 0, ...]."""
        runs = tuple(places if isinstance(places, slice) else slice(None) for places in self.axes)
        array = array[runs]
        for axis, places in enumerate(self.axes):
            if not isinstance(places, slice):
                array = np.take(array, places, axis)
        return array

    def rows(self, start: int, stop: int) -> tuple[Places, Reach]:
        """What of it lies in rows `start` to `stop - 1`, a block.

        Which rows these are of the values that stand there, and their places in the block.
        """
        shape, first = (stop - start, *self.shape[1:]), self.axes[0]
        if isinstance(first, slice):
            low = max(start, first.start)
            high = max(low, min(stop, first.stop))
            own: Places = slice(low - first.start, high - first.start)
            return own, Reach(shape, (slice(low - start, high - start), *self.axes[1:]))
        own = np.flatnonzero((first >= start) & (first < stop))
        return own, Reach(shape, (first[own] - start, *self.axes[1:]))

    def moved(self, inverse: Mapping[int, NDArray[np.intp]]) -> Reach:
        """Where the same values stand when old position c of an axis has gone to place `inverse[axis][c]`."""
        axes = tuple(
            run_of(inverse[axis][listed(places)]) if axis in inverse else places
            for axis, places in enumerate(self.axes)
        )
        return Reach(self.shape, axes)


def everywhere(shape: tuple[int, ...]) -> Reach:
    """All coordinates."""
    shape = shape or (1,)
    return Reach(shape, tuple(slice(0, length) for length in shape))


def nowhere(shape: tuple[int, ...]) -> Reach:
    """None."""
    whole = everywhere(shape)
    return Reach(whole.shape, (slice(0, 0), *whole.axes[1:]))


def reach_of(layout: ParameterLayout, spec: SubModelSpec) -> Reach:
    """What a sub-model holds of a parameter, in the order of its own channels."""
    whole = everywhere(layout.shape)
    if not layout.axes or not spec.kept:
        return whole
    runs = {axis: _leading(segments, spec) for axis, segments in layout.axes.items()}
    if None in runs.values():
        runs |= {axis: run_of(places) for axis, places in cut_axes(layout, spec).items()}
    axes = ((places if (run := runs.get(axis)) is None else run) for axis, places in enumerate(whole.axes))
    return Reach(whole.shape, tuple(axes))


def _leading(segments: Sequence[Segment], spec: SubModelSpec) -> Places | None:
    """The run that leading channels of a single group are; the usual case, and at once to say."""
    (segment, *others), kept = segments, None
    if not others:
        kept = spec.kept.get(segment.group, segment.channels) if segment.group else segment.channels
    return slice(0, kept * segment.repeat) if isinstance(kept, int) else None


def checked_order(order: Order, channel_map: ChannelMap) -> Order:
    """The order in little memory; `InvariantError` unless it names every channel of its groups once."""
    check(SubModelSpec(kept={group: tuple(map(int, old)) for group, old in order.items()}), channel_map)
    for group, old in order.items():
        if len(old) != channel_map.groups[group].channels:
            raise InvariantError(f"{group!r}: expected all {channel_map.groups[group].channels} channels")
    return {group: np.array(old, np.min_scalar_type(len(old))) for group, old in order.items()}  # type: ignore[misc]


def inverse_axes(layout: ParameterLayout, order: Order) -> dict[int, NDArray[np.intp]]:
    """Per axis that is reordered, the place that each old position goes to."""
    return {axis: np.argsort(old) for axis, old in moved_axes(layout, order).items()}


def listed(places: Places) -> NDArray[np.intp]:
    """The places one by one."""
    return np.arange(places.start, places.stop) if isinstance(places, slice) else places


def run_of(places: NDArray[np.intp]) -> Places:
    """A run where the places are one."""
    if not len(places):
        return slice(0, 0)
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and (np.diff(places) == 1).all():
        return slice(first, last + 1)
    return places


class Reaches(Mapping[str, NDArray[np.bool_]]):
    """What an update reaches of every parameter: as a `Reach`, or, asked for by name, as a mask."""

    def __init__(self, channel_map: ChannelMap, find: Callable[[str], Reach]) -> None:
        self.channel_map, self.reach = channel_map, find

    def __getitem__(self, name: str) -> NDArray[np.bool_]:
        return self.reach(name).mask.reshape(self.channel_map.parameters[name].shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.channel_map.parameters)

    def __len__(self) -> int:
        return len(self.channel_map.parameters)

    def moved(self, order: Order) -> Reaches:
        """Where they are once channels have been put in this order."""
        layouts = self.channel_map.parameters
        return Reaches(
            self.channel_map, lambda name: self.reach(name).moved(inverse_axes(layouts[name], order))
        )


def all_of(channel_map: ChannelMap) -> Reaches:
    """Every coordinate of every parameter."""
    return Reaches(channel_map, lambda name: everywhere(channel_map.parameters[name].shape))


def common(reaches: Sequence[Reach]) -> Reach:
    """The coordinates that all of them have."""
    axes = zip(*(one.axes for one in reaches), strict=True)
    return Reach(reaches[0].shape, tuple(_shared(places) for places in axes))


def _shared(places: Iterable[Places]) -> Places:
    first, *others = places
    if all(isinstance(one, slice) for one in (first, *others)):
        low = max(one.start for one in (first, *others))  # type: ignore[union-attr]
        return slice(low, max(low, min(one.stop for one in (first, *others))))  # type: ignore[union-attr]
    kept = np.unique(listed(first))
    for one in others:
        kept = np.intersect1d(kept, listed(one))
    return kept


def mass(reaches: Sequence[Reach], weights: Sequence[float]) -> NDArray[np.float64]:
    """Per coordinate the sum of the weights of those that reach it, added in their order.

    It broadcasts to the full shape: one number where all reach everything. Positions that the same ones
    reach share one number until the end, so many alike cost little.
    """
    if all(one.whole for one in reaches):
        return np.array(sum(map(float, weights), 0.0))
    axes = [_classes([one.axes[axis] for one in reaches], n) for axis, n in enumerate(reaches[0].shape)]
    grid = np.zeros([int(ids.max(initial=-1)) + 1 for ids, _ in axes])
    for k, weight in enumerate(weights):
        grid[np.ix_(*(members[k] for _, members in axes))] += weight
    return grid[np.ix_(*(ids for ids, _ in axes))]


def _classes(all_places: Sequence[Places], length: int) -> tuple[NDArray[np.intp], list[NDArray[np.intp]]]:
    """The class of every position, those being alike that lie in the same lists; and each list's classes."""
    alike: dict[Any, Places] = {_key(places): places for places in all_places}
    ids = np.zeros(length, np.intp)
    for places in alike.values():
        split = 2 * ids
        split[places] += 1
        ids = np.unique(split, return_inverse=True)[1]
    members = {key: np.unique(ids[places]) for key, places in alike.items()}
    return ids, [members[_key(places)] for places in all_places]


def _key(places: Places) -> Any:
    return (places.start, places.stop) if isinstance(places, slice) else np.sort(places).tobytes()
