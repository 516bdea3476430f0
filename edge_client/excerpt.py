"""Arrays cut down to a sub-model a piece at a time, as `slicing.extract` does without a copy of it all."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from edge_client.slicing import Positions, check, cut_axes
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors import AnyArray, Kind, MadeArrays, kind_of, rows_of

Cut = Mapping[int, Positions]
"""The kept positions along each axis that is cut."""


class Excerpt(MadeArrays):
    """Global arrays as a sub-model holds them; those that bear no parameter's name are left as they are.

    `InvariantError` for a spec or a shape that does not fit.
    """

    def __init__(self, arrays: Mapping[str, AnyArray], spec: SubModelSpec, channel_map: ChannelMap) -> None:
        check(spec, channel_map)
        cuts: dict[str, Cut] = {}
        kinds: dict[str, Kind] = {}
        for name in arrays:
            layout, (dtype, shape) = channel_map.parameters.get(name), kind_of(arrays, name)
            if layout is not None and tuple(shape) != tuple(layout.shape):
                raise InvariantError(f"{name!r}: expected shape {tuple(layout.shape)}, got {tuple(shape)}")
            cuts[name] = cut = {} if layout is None else cut_axes(layout, spec)
            kinds[name] = dtype, tuple(len(cut[axis]) if axis in cut else n for axis, n in enumerate(shape))
        super().__init__(kinds, partial(_rows, arrays, cuts))


def _rows(
    arrays: Mapping[str, AnyArray], cuts: Mapping[str, Cut], name: str, start: int, stop: int
) -> AnyArray:
    cut = cuts[name]
    rows = picked_rows(arrays, name, cut[0][start:stop]) if 0 in cut else None
    array = rows_of(arrays, name, start, stop) if rows is None else rows
    for axis, positions in cut.items():
        if axis:
            array = _picked(array, positions, axis)
    return array


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
