"""Combiners that sort each coordinate's values and drop the outer ones.

`median` and `trimmed-mean`: Yin et al. 2018, Byzantine-Robust Distributed Learning, definitions 1 and 2.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation import blocks
from edge_server.strategy.aggregation.coverage import sum_weights
from edge_server.strategy.aggregation.means import Combiner, kinds_of
from edge_server.strategy.aggregation.updates import ROBUST, GlobalUpdate
from schemas.tensors.blobs import Array, Arrays

Counts = NDArray[np.int64]
Cut = Callable[[Counts], Counts]  # from the number of holders to the number of values dropped on each side
TRIM = 0.1


@ROBUST
def median() -> Combiner:
    """The median of each coordinate over its holders; weights are ignored."""
    return lambda updates, weights: _middle(updates, lambda holders: np.maximum(holders - 1, 0) // 2)


@ROBUST
def trimmed_mean(*, trim: float = TRIM) -> Combiner:
    """The mean of each coordinate over its n holders without the floor(trim * n) largest and smallest.

    Weights are ignored. With fewer than 1 / trim holders nothing is trimmed.
    """
    if not 0 <= trim < 0.5:
        raise ValueError("trim must be at least 0 and below 0.5")
    return lambda updates, weights: _middle(
        updates, lambda holders: np.floor(trim * holders + 1e-9).astype(np.int64)
    )


def _middle(updates: Sequence[GlobalUpdate], cut: Cut) -> Arrays:
    """The mean of each coordinate's sorted values without the first and the last `cut(holders [P])`."""

    def rows(name: str, start: int, stop: int) -> Array:
        values, holders = _columns(updates, name, start, stop)
        values.sort(axis=0)  # coordinates that are not held come last
        first = cut(holders)
        last = holders - first
        total = np.zeros(values.shape[1:])
        for rank in range(int(first.min(initial=len(updates))), int(last.max(initial=0))):
            np.add(total, values[rank], out=total, where=(rank >= first) & (rank < last))
        count = np.broadcast_to(last - first, total.shape)
        return np.divide(total, count, out=np.zeros_like(total), where=count > 0).astype(np.float32)

    return blocks.lazy_arrays(kinds_of(updates), rows, blocks.share_of_each(len(updates)))


def _columns(updates: Sequence[GlobalUpdate], name: str, start: int, stop: int) -> tuple[Array, Counts]:
    """Rows of every update [K, rows, ...], infinite where it does not cover; holders per coordinate."""
    reaches = [update.coverage.index_set(name).slice_rows(start, stop)[1] for update in updates]
    values = np.full((len(updates), *reaches[0].shape), np.inf, np.float32)
    for row, update, reach in zip(values, updates, reaches, strict=True):
        part = update.part(name, start, stop).within(reach)
        if part.place is not reach:
            row[reach.index] = 0
        row[part.place.index] = part.values
    return values, sum_weights(reaches, [1.0] * len(updates)).astype(np.int64)
