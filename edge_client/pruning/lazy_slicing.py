"""Slices arrays to a sub-model block by block, like `slicing.extract` but without a copy of the whole."""

import math
from collections.abc import Mapping
from functools import partial

import numpy as np

from edge_client.pruning.index_sets import (
    AxisIndex,
    IndexSet,
    full_index_set,
    slice_index,
    submodel_index_set,
)
from edge_client.pruning.slicing import check_spec, expect_shape
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import AnyArray, ComputedArrays, Kind, LazyArrays, kind_of, rows_of

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
