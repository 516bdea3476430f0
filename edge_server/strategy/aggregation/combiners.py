"""Combiners: from K updates and their weights to one change of the global model.

The change is computed on demand, a few rows at a time: neither the updates nor the change need fit into
memory. Robust combiners bound what a faulty or hostile client can do; as clients report their own numbers of
examples, no robust combiner lets a weight decide which values count.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import IndexSet
from edge_client.system.plugins import TraitRegistry
from edge_server.strategy.aggregation import blocks
from edge_server.strategy.aggregation.accumulator import Floats
from edge_server.strategy.aggregation.deltas import DeltaRows, sum_weights
from edge_server.strategy.aggregation.means import Combiner, kinds_of, mean_over_holders, mean_over_overlap
from edge_server.strategy.aggregation.updates import ROBUST, CombinerTraits, GlobalUpdate, is_statistic
from schemas.tensors.arrays import Array, Arrays, kind_of

# Products of all pairs of a round's updates, a few rows at a time.

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


def cosines_to_others(updates: Sequence[GlobalUpdate], weights: Sequence[float]) -> Floats:
    """The cosine of each update to the weighted mean of the others, [K]; 0 where one of the two is 0.

    It is over the trained weights that an update and one of the others hold, without running statistics.
    """
    sums = np.zeros((3, len(updates)))
    for name in updates[0].delta:
        if is_statistic(name):
            continue
        reaches = [update.held.index_set(name) for update in updates]
        for start, stop, rows in _cells(updates, name, GlobalUpdate.trained_rows):
            masks = [reach.slice_rows(start, stop)[1].mask.ravel() for reach in reaches]
            own = np.asarray(weights, np.float64)[:, None] * np.stack(masks)
            total, moved = own.sum(axis=0), own * rows
            both = (own > 0) & (own < total)
            others = np.divide(moved.sum(axis=0) - moved, total - own, out=np.zeros_like(rows), where=both)
            held = np.where(both, rows, 0.0)
            sums += [(held * others).sum(axis=1), (held * held).sum(axis=1), (others * others).sum(axis=1)]
    lengths, cosines = np.sqrt(sums[1] * sums[2]), np.zeros(len(updates))
    np.divide(sums[0], lengths, out=cosines, where=lengths > 0)
    return cosines


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


# Combiners that sort each coordinate's values and drop the outer ones.

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


# The combiner `krum`: Blanchard et al. 2017, Machine Learning with Adversaries, section 4.


@ROBUST
def krum(*, byzantine: float = 0.2, keep: int = 1) -> Combiner:
    """The weighted mean of the `keep` updates closest to their neighbours (1: Krum, more: multi-Krum).

    With `keep` = 0 all but f are kept. `byzantine` is f, the number of clients that may be hostile: a share
    of the round if below 1, else a count. The paper's guarantee needs more than 2 f + 2 clients; a smaller
    round is combined without it. Weights apply among the kept updates only, equally if all are 0.
    Coordinates that no kept client holds do not change: with different sub-models keep several.
    """
    if byzantine < 0 or (byzantine >= 1 and byzantine != int(byzantine)):
        raise ValueError("byzantine must be a share below 1 or a whole number of clients")
    if keep < 0:
        raise ValueError("keep must be at least 0")

    def combine(updates: Sequence[GlobalUpdate], weights: NDArray[np.float64]) -> Arrays:
        hostile = int(byzantine if byzantine >= 1 else math.floor(byzantine * len(updates) + 1e-9))
        most = keep or max(1, len(updates) - hostile)
        kept = np.sort(np.argsort(krum_scores(updates, hostile), kind="stable")[:most])
        shares = weights[kept] if weights[kept].any() else np.ones(len(kept))
        return mean_over_holders([updates[index] for index in kept], shares)

    return combine


def krum_scores(updates: Sequence[GlobalUpdate], hostile: int) -> NDArray[np.float64]:
    """Per client [K], the sum of squared distances to its K - f - 2 nearest neighbours (at least one)."""
    count = len(updates)
    squared = squared_distances(updates)
    np.fill_diagonal(squared, np.inf)
    others = np.sort(squared, axis=1)[:, : count - 1]
    return np.asarray(others[:, : max(1, count - hostile - 2)].sum(axis=1))


_FULL_WEIGHT = "an update within bounds counts with its full weight, whichever way it points"


@CombinerTraits(trusts=_FULL_WEIGHT, is_sum=True)
def mean() -> Combiner:
    """The weighted mean over the holders of each coordinate; no change where there are none."""
    return mean_over_holders


@CombinerTraits(trusts=_FULL_WEIGHT)
def overlap_mean(*, elsewhere: str = "keep") -> Combiner:
    """The weighted mean of the coordinates that all clients of the round hold.

    Hermes (Li et al. 2021) averages the intersection of its sub-networks and leaves the rest to each device
    (objective `personal`). Chosen here: the intersection is that of the round's clients, not of pairs. The
    method has no global model outside the intersection; here tests and new devices need values there.
    `keep` leaves them unchanged, which is the method literally; `holders` takes the mean over the holders.
    With nested tiers, `keep` never trains the global model beyond the weakest tier; with `holders` it is the
    model of `mean`, and only devices keep something personal.
    """
    if elsewhere not in ("keep", "holders"):
        raise ValueError(f"elsewhere is 'keep' or 'holders', not '{elsewhere}'")
    return mean_over_overlap if elsewhere == "keep" else mean_over_holders


COMBINERS: TraitRegistry[Callable[..., Combiner], CombinerTraits] = TraitRegistry(
    "combiner",
    CombinerTraits,
    {
        "mean": mean,
        "overlap-mean": overlap_mean,
        "median": median,
        "trimmed-mean": trimmed_mean,
        "krum": krum,
    },
)
