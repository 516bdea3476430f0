"""Means of a round's updates over the holders of each coordinate, a few rows at a time."""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import IndexSet
from edge_server.strategy.aggregation import blocks
from edge_server.strategy.aggregation.accumulator import ExactAccumulator, Floats, RowAccumulator
from edge_server.strategy.aggregation.blocks import as_rows
from edge_server.strategy.aggregation.deltas import UpdateCoverage, intersection, sum_weights
from edge_server.strategy.aggregation.partial_sums import COARSE, FINE, PartialSum, check_size, merged_members
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.errors import InvariantError
from schemas.tensors.arrays import Array, Arrays, Kind, kind_of, rows_of

# `(updates, weights [K]) -> change of each parameter, of its full shape P`
Combiner = Callable[[Sequence[GlobalUpdate], Floats], Arrays]


def mean_over_holders(updates: Iterable[GlobalUpdate], weights: Iterable[float]) -> Arrays:
    """Sum of w_k delta_k over sum of w_k, per coordinate, accumulated in double precision.

    Each access to some rows reads those rows of every update once.
    """
    updates, weights = list(updates), [np.float64(weight) for weight in weights]

    def rows(name: str, start: int, stop: int) -> Array:
        if not is_covered(updates, name):
            return _no_change(updates, name, start, stop)
        total, reached = weighted_sum(updates, weights, name, start, stop)
        return divide_by_weight(total, sum_weights(reached, weights))

    return blocks.lazy_arrays(kinds_of(updates), rows)


def exact_mean(
    updates: Sequence[GlobalUpdate], counts: Sequence[int], parts: Sequence[PartialSum] = ()
) -> Arrays:
    """`mean_over_holders` with whole weights, to the same bits in whatever order and groups they are added.

    The `parts` contain those of the updates that are summed already. Raises `InvariantError` for more updates
    or weight than an exact sum can hold, and for parts that contain other updates, or with other weights.
    """
    check_size(counts)
    expected = {u.source.client: count for u, count in zip(updates, counts, strict=True) if u.is_summed}
    if merged_members(parts) != expected:
        raise InvariantError("the sums of a round do not contain the updates that they should")
    weights = [np.float64(count) for count in counts]

    def rows(name: str, start: int, stop: int) -> Array:
        if not is_covered(updates, name):
            return _no_change(updates, name, start, stop)
        adding = ExactAccumulator(name, start, stop, kind_of(updates[0].delta, name)[1] or (1,))
        reached = _add_all(adding, updates, weights)
        for part in parts:
            adding.add_sums(*(as_rows(rows_of(part.groups[g], name, start, stop)) for g in (COARSE, FINE)))
        return divide_by_weight(adding.total, sum_weights(reached, weights))

    return blocks.lazy_arrays(kinds_of(updates), rows)


def is_covered(updates: Sequence[GlobalUpdate], name: str) -> bool:
    """Whether any device has trained a part of this parameter."""
    return any(update.coverage.index_set(name).size for update in updates)


def _no_change(updates: Sequence[GlobalUpdate], name: str, start: int, stop: int) -> Array:
    shape = kind_of(updates[0].delta, name)[1] or (1,)
    return np.zeros((stop - start, *shape[1:]), np.float32)


def _add_all(
    adding: RowAccumulator, updates: Sequence[GlobalUpdate], weights: Sequence[float]
) -> list[IndexSet]:
    """Add the rows of all updates; returns what each of them covers of these rows."""
    return [adding.add(update, weight) for update, weight in zip(updates, weights, strict=True)]


def weighted_sum(
    updates: Sequence[GlobalUpdate], weights: Sequence[float], name: str, start: int, stop: int
) -> tuple[Floats, list[IndexSet]]:
    """Rows of the sum of w_k delta_k, and what each update covers of these rows."""
    adding = RowAccumulator(name, start, stop, kind_of(updates[0].delta, name)[1] or (1,))
    reached = _add_all(adding, updates, weights)
    return adding.total, reached


def divide_by_weight(total: Floats, held: Floats) -> Array:
    """The total over the held weight; 0 where that is 0."""
    if not held.ndim:
        return (total / held if held > 0 else np.zeros_like(total)).astype(np.float32)
    held = np.broadcast_to(held, total.shape)
    return np.divide(total, held, out=np.zeros_like(total), where=held > 0).astype(np.float32)


def mean_over_overlap(updates: Sequence[GlobalUpdate], weights: Iterable[float]) -> Arrays:
    """`mean_over_holders`, but 0 at coordinates that some update does not cover."""
    change = mean_over_holders(updates, weights)

    def rows(name: str, start: int, stop: int) -> Array:
        covered = intersection([update.coverage.index_set(name) for update in updates])
        _, kept = covered.slice_rows(start, stop)
        held = as_rows(rows_of(change, name, start, stop))
        if kept.whole:
            return held
        cut = np.zeros_like(held)
        cut[kept.index] = held[kept.index]
        return cut

    return blocks.lazy_arrays(kinds_of(updates), rows)


def overlap(updates: Sequence[GlobalUpdate]) -> Mapping[str, NDArray[np.bool_]]:
    """The coordinates that every update of the round covers, as masks of the full shapes P."""
    first, *_ = updates
    return UpdateCoverage(
        first.coverage.channel_map,
        lambda name: intersection([update.coverage.index_set(name) for update in updates]),
    )


def kinds_of(updates: Sequence[GlobalUpdate]) -> dict[str, Kind]:
    return {name: (np.dtype(np.float32), kind_of(updates[0].delta, name)[1]) for name in updates[0].delta}
