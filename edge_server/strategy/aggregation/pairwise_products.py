"""Products of all pairs of a round's updates, a few rows at a time.

Sums run over cells of a fixed size, in order: their last bits depend neither on the available memory nor on
where updates are stored.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from edge_client.pruning.index_sets import IndexSet
from edge_server.strategy.aggregation import blocks
from edge_server.strategy.aggregation.accumulator import Floats
from edge_server.strategy.aggregation.deltas import DeltaRows
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.arrays import kind_of

CELL_NUMBERS = 4096  # numbers in a cell, or one row if that is longer


def dot_products(updates: Sequence[GlobalUpdate]) -> Floats:
    """The dot products of all pairs of update vectors, [K, K], in double precision."""
    pairs = np.zeros((len(updates), len(updates)))
    for name in updates[0].delta:
        for _, _, rows in _cells(updates, name, GlobalUpdate.part):
            pairs += rows @ rows.T
    return pairs


def squared_distances(updates: Sequence[GlobalUpdate]) -> Floats:
    """Squared distances over the coordinates that both hold, divided by their share of all; [K, K].

    Without that division, pairs with little in common would be close; without common coordinates the
    distance is infinite. The sum of a^2 + b^2 - 2 a b over common coordinates takes three matrix products.
    """
    count = len(updates)
    total, shared, size = np.zeros((count, count)), np.zeros((count, count)), 0
    for name in updates[0].delta:
        reaches = [update.held.index_set(name) for update in updates]
        unlike: dict[object, tuple[int, IndexSet]] = {}
        which = [unlike.setdefault(reach.key, (len(unlike), reach))[0] for reach in reaches]
        distinct = [reach for _, reach in unlike.values()]
        products = np.zeros((count, count))
        squares, both = np.zeros((count, len(distinct))), np.zeros((len(distinct), len(distinct)))
        for start, stop, rows in _cells(updates, name, GlobalUpdate.trained_rows):
            masks = [reach.slice_rows(start, stop)[1].mask.ravel() for reach in distinct]
            held = np.stack(masks).astype(np.float64)
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
    """A parameter cell by cell: rows (start, stop), and all updates' values there, [K, numbers]."""
    shape = kind_of(updates[0].delta, name)[1] or (1,)
    row = math.prod(shape[1:])
    cell = max(1, CELL_NUMBERS // max(1, row))
    block = cell * max(1, blocks.share_of_each(len(updates)) // (cell * max(1, row)))
    for first in range(0, shape[0], block):
        last = min(first + block, shape[0])
        values = np.zeros((len(updates), last - first, *shape[1:]), np.float32)
        for row_values, update in zip(values, updates, strict=True):
            changes, place = part(update, name, first, last)
            row_values[place.index] = changes
        for start in range(first, last, cell):
            stop = min(start + cell, last)
            some = values[:, start - first : stop - first]
            yield start, stop, some.reshape(len(updates), -1).astype(np.float64)
