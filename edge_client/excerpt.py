"""Arrays cut down to a sub-model a piece at a time, as `slicing.extract` does without a copy of it all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from edge_client.slicing import Positions, check, cut_axes
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors import AnyArray, Kind, LazyArrays, kind_of, rows_of


class Excerpt(LazyArrays):
    """Global arrays as a sub-model holds them; those that bear no parameter's name are left as they are.

    `InvariantError` for a spec or a shape that does not fit.
    """

    def __init__(self, arrays: Mapping[str, AnyArray], spec: SubModelSpec, channel_map: ChannelMap) -> None:
        check(spec, channel_map)
        self._arrays = arrays
        self._cut: dict[str, dict[int, Positions]] = {}
        for name in arrays:
            layout = channel_map.parameters.get(name)
            shape = kind_of(arrays, name)[1]
            if layout is not None and tuple(shape) != tuple(layout.shape):
                raise InvariantError(f"{name!r}: expected shape {tuple(layout.shape)}, got {tuple(shape)}")
            self._cut[name] = {} if layout is None else cut_axes(layout, spec)

    def kind(self, name: str) -> Kind:
        """The shape is that of the cut array."""
        dtype, shape = kind_of(self._arrays, name)
        cut = self._cut[name]
        return dtype, tuple(len(cut[axis]) if axis in cut else n for axis, n in enumerate(shape))

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Cut now."""
        cut = self._cut[name]
        rows = picked_rows(self._arrays, name, cut[0][start:stop]) if 0 in cut else None
        array = rows_of(self._arrays, name, start, stop) if rows is None else rows
        for axis, positions in cut.items():
            if axis:
                array = _picked(array, positions, axis)
        return array

    def __iter__(self) -> Iterator[str]:
        return iter(self._cut)

    def __len__(self) -> int:
        return len(self._cut)


def picked_rows(arrays: Mapping[str, AnyArray], name: str, rows: Positions) -> AnyArray:
    """Rows of an array in this order; what lies between them is read along."""
    if not rows.size:
        return rows_of(arrays, name, 0, 0)
    low = int(rows.min())
    return _picked(rows_of(arrays, name, low, int(rows.max()) + 1), rows - low, 0)


def _picked(array: AnyArray, positions: Positions, axis: int) -> AnyArray:
    """A view where the positions are adjacent, as those of a prefix are."""
    first, count = int(positions[0]), len(positions)
    if np.array_equal(positions, np.arange(first, first + count)):
        return array[(slice(None),) * axis + (slice(first, first + count),)]
    return np.take(array, positions, axis)
