"""Parameters a few rows at a time: a round's results are made block by block, and only when asked for.

A block is a run of rows along a parameter's first axis, small enough that one of every client fits beside
the others. How large blocks are changes no bit of any result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import numpy as np

from schemas.tensors.arrays import AnyArray, ComputedArrays, Kind, kind_of, rows_of

NUMBERS = 256 * 1024
"""Coordinates of a block where each client's is looked at and let go."""
ALL_NUMBERS = 4 * 1024 * 1024
"""Coordinates that the blocks of all clients have together, where they are needed at once."""
SUM_NUMBERS = 1024 * 1024
"""Coordinates that are summed at once over one client's whole update; of this the last bits depend."""


def share_of_each(clients: int) -> int:
    """Coordinates of a block where the blocks of so many clients are needed at once."""
    return max(1, min(NUMBERS, ALL_NUMBERS // max(1, clients)))


def row_blocks(
    shape: tuple[int, ...], numbers: int | None = None, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Rows (start, stop) of about so many numbers each, at least one, that make up an array or these rows.

    A block's unless it is said how many.
    """
    stop = (shape[0] if shape else 1) if stop is None else stop
    step = max(1, (numbers or NUMBERS) // max(1, math.prod(shape[1:])))
    return ((first, min(first + step, stop)) for first in range(start, stop, step))


def lazy_arrays(
    kinds: Mapping[str, Kind], make: Callable[[str, int, int], AnyArray], numbers: int | None = None
) -> ComputedArrays:
    """Arrays of these kinds, of which `make(name, start, stop)` is asked for blocks, of so many numbers."""

    def rows(name: str, start: int, stop: int) -> AnyArray:
        dtype, shape = kinds[name]
        made = np.empty((stop - start, *shape[1:]), dtype)
        for first, last in row_blocks(shape, numbers, start, stop):
            made[first - start : last - start] = make(name, first, last)
        return made if shape else made.reshape(())

    return ComputedArrays(kinds, rows)


def select_arrays(arrays: Mapping[str, AnyArray], names: Iterable[str]) -> ComputedArrays:
    """Those of these names, read when they are asked for."""
    return ComputedArrays({name: kind_of(arrays, name) for name in names}, partial(rows_of, arrays))


def as_rows(array: AnyArray) -> AnyArray:
    """The array itself; a scalar as one row."""
    return array.reshape(array.shape or (1,))
