"""How large an update's numbers are: looked at once, whatever is to be known of them afterwards."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schemas.blobs import Arrays, Groups
from schemas.tensors import kind_of, pieces, rows_of


@dataclass(frozen=True, slots=True)
class Size:
    """The `largest` magnitude of `count` numbers and the sum of their `squares`.

    Both are no numbers where one of them is not finite.
    """

    largest: float
    squares: float
    count: int


Sizes = Mapping[str, Mapping[str, Size]]
"""Per group and name."""


def sizes_of(groups: Groups) -> Sizes:
    """Of all arrays, each read once, some rows at a time: no update need be in memory whole."""
    return {group: {name: size_of(arrays, name) for name in arrays} for group, arrays in groups.items()}


def size_of(arrays: Arrays, name: str) -> Size:
    """Of one array."""
    largest, squares, count = 0.0, 0.0, 0
    for start, stop in pieces(kind_of(arrays, name)):
        rows = rows_of(arrays, name, start, stop).reshape(-1)
        if not rows.size:
            continue
        most = max(float(rows.max()), -float(rows.min()))
        if not math.isfinite(most):
            return Size(math.nan, math.nan, count + rows.size)
        largest = max(largest, most)
        # In the numbers' own precision: bounds are tens of times what is usual, not millionths.
        with np.errstate(over="ignore"):
            squares += float(np.dot(rows, rows))
        count += rows.size
    return Size(largest, squares, count)
