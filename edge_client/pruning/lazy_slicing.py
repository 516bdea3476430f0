"""Arrays cut down to a sub-model a piece at a time, as `slicing.extract` does without a copy of it all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from edge_client.pruning.index_sets import IndexSet, Places, everywhere, reach_of, some
from edge_client.pruning.slicing import check
from schemas.errors import InvariantError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, ComputedArrays, Kind, LazyArrays, kind_of, rows_of

SPAN_BYTES = 256 * 1024
"""Rows that are not contiguous are read in blocks of at most this many bytes."""


class LazySlice(ComputedArrays):
    """Global arrays as a sub-model holds them; those that bear no parameter's name are left as they are.

    `InvariantError` for a spec or a shape that does not fit.
    """

    def __init__(self, arrays: Mapping[str, AnyArray], spec: SubModelSpec, channel_map: ChannelMap) -> None:
        check(spec, channel_map)
        reaches: dict[str, IndexSet] = {}
        kinds: dict[str, Kind] = {}
        for name in arrays:
            layout, (dtype, shape) = channel_map.parameters.get(name), kind_of(arrays, name)
            if layout is not None and tuple(shape) != tuple(layout.shape):
                raise InvariantError(f"{name!r}: expected shape {tuple(layout.shape)}, got {tuple(shape)}")
            reaches[name] = everywhere(shape) if layout is None else reach_of(layout, spec)
            kinds[name] = dtype, reaches[name].sizes if shape else ()
        super().__init__(kinds, partial(values_at, arrays, reaches))


def values_at(
    arrays: Mapping[str, AnyArray], reaches: Mapping[str, IndexSet], name: str, start: int, stop: int
) -> AnyArray:
    """Of the values that stand at the reach of an array, rows `start` to `stop - 1`."""
    first, *others = reaches[name].axes
    rows = rows_at(arrays, name, some(first, start, stop))
    return IndexSet(rows.shape, (slice(0, len(rows)), *others)).of(rows) if rows.ndim else rows


def rows_at(arrays: Mapping[str, AnyArray], name: str, wanted: Places) -> AnyArray:
    """Rows of an array in this order, without reading much of what lies between them."""
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
        stretch = arrays.rows(name, first, int(ascending[end - 1]) + 1)
        taken[order[begin:end]] = stretch[ascending[begin:end] - first]
        begin = end
    return taken
