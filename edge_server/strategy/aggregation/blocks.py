"""Parameters in blocks: a round's results are computed block by block, on demand.

A block is some adjacent rows along a parameter's first axis, small enough that the blocks of all clients fit
into memory. The size of blocks changes no bit of any result.
"""

import math
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from schemas.submodel import ParameterLayout
from schemas.tensors.arrays import AnyArray, ComputedArrays, Kind

NUMBERS = 256 * 1024  # numbers in a block, if clients are read one at a time
ALL_NUMBERS = 4 * 1024 * 1024  # numbers in the blocks of all clients together, if they are needed at once
# Numbers summed at once over a client's whole update; the last bits of the sum depend on it.
SUM_NUMBERS = 1024 * 1024


def share_of_each(clients: int) -> int:
    """Numbers in a block if the blocks of this many clients are needed at once."""
    return max(1, min(NUMBERS, ALL_NUMBERS // max(1, clients)))


def row_blocks(
    shape: tuple[int, ...], numbers: int | None = None, start: int = 0, stop: int | None = None
) -> Iterator[tuple[int, int]]:
    """Split an array, or its rows from `start` to `stop`, into blocks (start, stop) of about `numbers` each.

    A block has at least one row; `numbers` defaults to `NUMBERS`.
    """
    stop = (shape[0] if shape else 1) if stop is None else stop
    step = max(1, (numbers or NUMBERS) // max(1, math.prod(shape[1:])))
    return ((first, min(first + step, stop)) for first in range(start, stop, step))


def all_blocks(shaped: Mapping[str, AnyArray | ParameterLayout]) -> Iterator[tuple[str, int, int]]:
    """The blocks (name, start, stop) of all parameters."""
    return ((name, start, stop) for name, each in shaped.items() for start, stop in row_blocks(each.shape))


def lazy_arrays(
    kinds: Mapping[str, Kind], make: Callable[[str, int, int], AnyArray], numbers: int | None = None
) -> ComputedArrays:
    """Arrays of these kinds, computed on demand by `make(name, start, stop)` in blocks of `numbers`."""

    def rows(name: str, start: int, stop: int) -> AnyArray:
        dtype, shape = kinds[name]
        made = np.empty((stop - start, *shape[1:]), dtype)
        for first, last in row_blocks(shape, numbers, start, stop):
            made[first - start : last - start] = make(name, first, last)
        return made if shape else made.reshape(())

    return ComputedArrays(kinds, rows)


def as_rows(array: AnyArray) -> AnyArray:
    """The array; a scalar as one row."""
    return array.reshape(array.shape or (1,))
