"""Which coordinates of a parameter are meant: some positions along every axis, in every combination.

Sub-models are cut along axes, so nobody needs a mask of a parameter's size to say what one of them holds.
"""

from __future__ import annotations

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

Places = slice | NDArray[np.intp]
"""Positions along an axis: a run, or a list in any order."""


@dataclass(frozen=True, eq=False)
class IndexSet:
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
        return tuple(key_of(places) for places in self.axes)

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

    def rows(self, start: int, stop: int) -> tuple[Places, IndexSet]:
        """What of it lies in rows `start` to `stop - 1`, a block.

        Which rows these are of the values that stand there, and their places in the block.
        """
        shape, first = (stop - start, *self.shape[1:]), self.axes[0]
        if isinstance(first, slice):
            low = max(start, first.start)
            high = max(low, min(stop, first.stop))
            own: Places = slice(low - first.start, high - first.start)
            return own, IndexSet(shape, (slice(low - start, high - start), *self.axes[1:]))
        own = np.flatnonzero((first >= start) & (first < stop))
        return own, IndexSet(shape, (first[own] - start, *self.axes[1:]))

    def moved(self, inverse: Mapping[int, NDArray[np.intp]]) -> IndexSet:
        """Where the same values stand when old position c of an axis has gone to place `inverse[axis][c]`."""
        axes = tuple(
            run_of(inverse[axis][listed(places)]) if axis in inverse else places
            for axis, places in enumerate(self.axes)
        )
        return IndexSet(self.shape, axes)


def everywhere(shape: tuple[int, ...]) -> IndexSet:
    """All coordinates."""
    shape = shape or (1,)
    return IndexSet(shape, tuple(slice(0, length) for length in shape))


def nowhere(shape: tuple[int, ...]) -> IndexSet:
    """None."""
    whole = everywhere(shape)
    return IndexSet(whole.shape, (slice(0, 0), *whole.axes[1:]))


def reach_of(layout: ParameterLayout, spec: SubModelSpec) -> IndexSet:
    """What a sub-model holds of a parameter, in the order of its own channels."""
    whole = everywhere(layout.shape)
    if not layout.axes or not spec.kept:
        return whole
    runs = {axis: _leading(segments, spec) for axis, segments in layout.axes.items()}
    if None in runs.values():
        runs |= {axis: run_of(places) for axis, places in cut_axes(layout, spec).items()}
    axes = ((places if (run := runs.get(axis)) is None else run) for axis, places in enumerate(whole.axes))
    return IndexSet(whole.shape, tuple(axes))


def _leading(segments: Sequence[Segment], spec: SubModelSpec) -> Places | None:
    """The run that leading channels of a single group are; the usual case, and at once to say."""
    (segment, *others), kept = segments, None
    if not others:
        kept = spec.kept.get(segment.group, segment.channels) if segment.group else segment.channels
    return slice(0, kept * segment.repeat) if isinstance(kept, int) else None


def listed(places: Places) -> NDArray[np.intp]:
    """The places one by one."""
    return np.arange(places.start, places.stop) if isinstance(places, slice) else places


def some(places: Places, start: int, stop: int) -> Places:
    """Those numbered `start` to `stop - 1`."""
    return (
        slice(places.start + start, places.start + stop) if isinstance(places, slice) else places[start:stop]
    )


def run_of(places: NDArray[np.intp]) -> Places:
    """A run where the places are one."""
    if not len(places):
        return slice(0, 0)
    first, last = int(places[0]), int(places[-1])
    if last - first == len(places) - 1 and (np.diff(places) == 1).all():
        return slice(first, last + 1)
    return places


def key_of(places: Places) -> Any:
    return (places.start, places.stop) if isinstance(places, slice) else np.sort(places).tobytes()
