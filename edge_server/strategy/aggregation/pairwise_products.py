"""Products between all pairs of a round's updates, a few rows at a time.

Sums run over cells of a fixed size, in order: so their last bits depend neither on how much memory there is
nor on where the updates lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import Reach
from edge_server.strategy.aggregation import blocks
from edge_server.strategy.aggregation.deltas import DeltaRows
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.arrays import kind_of

Floats = NDArray[np.float64]
CELL_NUMBERS = 4096
"""Coordinates of a cell, or one row where that is longer."""


def dot_products(updates: Sequence[GlobalUpdate]) -> Floats:
    """Of whole update vectors, for every pair, [K, K], in double precision."""
    pairs = np.zeros((len(updates), len(updates)))
    for name in updates[0].delta:
        for _, _, rows in _cells(updates, name, GlobalUpdate.part):
            pairs += rows @ rows.T
    return pairs


def squared_distances(updates: Sequence[GlobalUpdate]) -> Floats:
    """Per pair, over the coordinates that both hold, divided by the share of all that these are; [K, K].

    So a pair with little in common is not close for that alone; with nothing in common it is infinitely far.
    Of a and b it is the sum of a^2 and b^2 less 2 a b, over what both hold: three products of matrices.
    """
    count = len(updates)
    total, shared, size = np.zeros((count, count)), np.zeros((count, count)), 0
    for name in updates[0].delta:
        reaches = [update.held.reach(name) for update in updates]
        distinct, which = _distinct(reaches)
        products = np.zeros((count, count))
        squares, both = np.zeros((count, len(distinct))), np.zeros((len(distinct), len(distinct)))
        for start, stop, rows in _cells(updates, name, GlobalUpdate.trained):
            held = np.stack([reach.rows(start, stop)[1].mask.ravel() for reach in distinct]).astype(
                np.float64
            )
            products += rows @ rows.T
            squares += (rows * rows) @ held.T
            both += held @ held.T
        own = squares[:, which]
        total += own + own.T - 2 * products
        shared += both[np.ix_(which, which)]
        size += math.prod(reaches[0].shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(shared > 0, np.maximum(total, 0) * size / shared, np.inf)


def _cells(
    updates: Sequence[GlobalUpdate], name: str, part: Callable[[GlobalUpdate, str, int, int], DeltaRows]
) -> Iterator[tuple[int, int, Floats]]:
    """Cell by cell of a parameter: its rows (start, stop), and all updates' values there, [K, numbers]."""
    shape = kind_of(updates[0].delta, name)[1] or (1,)
    row = math.prod(shape[1:])
    cell = max(1, CELL_NUMBERS // max(1, row))
    block = cell * max(1, blocks.share_of_each(len(updates)) // (cell * max(1, row)))
    for first in range(0, shape[0], block):
        last = min(first + block, shape[0])
        values = np.zeros((len(updates), last - first, *shape[1:]), np.float32)
        for one, update in zip(values, updates, strict=True):
            found = part(update, name, first, last)
            one[found.place.index] = found.values
        for start in range(first, last, cell):
            stop = min(start + cell, last)
            some = values[:, start - first : stop - first]
            yield start, stop, some.reshape(len(updates), -1).astype(np.float64)


def _distinct(reaches: Sequence[Reach]) -> tuple[list[Reach], list[int]]:
    """The reaches without repetitions, and which of them each is."""
    found: dict[object, tuple[int, Reach]] = {}
    which = [found.setdefault(reach.key, (len(found), reach))[0] for reach in reaches]
    return [reach for _, reach in found.values()], which
