"""Combiners: from K updates and their weights to one change of the global model.

The robust ones bound what a faulty or hostile client can do: `median` and `trimmed-mean` (Yin et al. 2018,
Byzantine-Robust Distributed Learning, definitions 1 and 2) and `krum` (Blanchard et al. 2017, Machine
Learning with Adversaries, section 4). A client states its own number of examples, so none of the three lets
a weight decide which values count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.updates import GlobalUpdate
from schemas.blobs import Array, Arrays

Combiner = Callable[[Sequence[GlobalUpdate], NDArray[np.float64]], Arrays]
"""`(updates, weights [K]) -> change of each parameter, of its full shape P`."""


def mean() -> Combiner:
    """The weighted mean over the clients that hold a coordinate; no change where nobody does."""
    return mean_over_holders


def mean_over_holders(updates: Iterable[GlobalUpdate], weights: NDArray[np.float64]) -> Arrays:
    """Sum of w_k delta_k over sum of w_k, per coordinate, accumulated in double precision.

    Goes through the updates once, one at a time.
    """
    total: dict[str, NDArray[np.float64]] = {}
    mass: dict[str, NDArray[np.float64]] = {}
    for update, weight in zip(updates, weights, strict=True):
        for name, delta in update.delta.items():
            if name not in total:
                total[name], mass[name] = np.zeros(delta.shape), np.zeros(delta.shape)
            covered = update.coverage[name]
            total[name] += weight * np.where(covered, delta, 0)
            mass[name] += weight * covered
    return {name: _share(total[name], mass[name]) for name in total}


def _share(total: NDArray[np.float64], mass: NDArray[np.float64]) -> Array:
    return np.divide(total, mass, out=np.zeros_like(total), where=mass > 0).astype(np.float32)


def overlap_mean(*, elsewhere: str = "keep") -> Combiner:
    """The weighted mean where all clients of the round hold a coordinate.

    Hermes (Li et al. 2021) averages the intersection of its sub-networks and leaves the rest to each device
    (objective `personal`). Chosen here: the intersection is that of the round's clients, not of pairs.
    The method has no global model outside it; one that is tested and handed to newcomers needs values
    there: `keep` leaves them as they were, which is the method to the letter, and `holders` takes the mean
    over those that hold a coordinate. Where tiers nest, the global model would never learn anything beyond
    the weakest under `keep`; under `holders` it is that of `mean`, and only devices keep something personal.
    """
    if elsewhere not in ("keep", "holders"):
        raise ValueError(f"elsewhere is 'keep' or 'holders', not '{elsewhere}'")
    return mean_over_overlap if elsewhere == "keep" else mean_over_holders


def mean_over_overlap(updates: Sequence[GlobalUpdate], weights: NDArray[np.float64]) -> Arrays:
    """`mean_over_holders`, and 0 wherever anyone lacks the coordinate."""
    common = overlap(updates)
    return {
        name: np.where(common[name], change, np.float32(0))
        for name, change in mean_over_holders(updates, weights).items()
    }


def overlap(updates: Sequence[GlobalUpdate]) -> dict[str, NDArray[np.bool_]]:
    """Which coordinates every client of the round holds, of the full shapes P."""
    common: dict[str, NDArray[np.bool_]] = {}
    for update in updates:
        for name, covered in update.coverage.items():
            common[name] = common[name] & covered if name in common else covered
    return common


def median() -> Combiner:
    """The median of each coordinate over the clients that hold it; weights are not looked at."""
    return lambda updates, weights: _middle(updates, lambda holders: np.maximum(holders - 1, 0) // 2)


def trimmed_mean(*, trim: float = 0.1) -> Combiner:
    """The mean of each coordinate over its n holders, but for the floor(trim * n) largest and smallest.

    Weights are not looked at. With fewer than 1 / trim holders nothing is trimmed.
    """
    if not 0 <= trim < 0.5:
        raise ValueError("trim must be at least 0 and below 0.5")
    return lambda updates, weights: _middle(
        updates, lambda holders: np.floor(trim * holders + 1e-9).astype(np.int64)
    )


def _middle(updates: Sequence[GlobalUpdate], cut: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> Arrays:
    """The plain mean of each coordinate's sorted values without the first and the last `cut(holders [P])`."""
    return {name: _middle_of(name, updates, cut) for name in updates[0].delta}


def _middle_of(
    name: str, updates: Sequence[GlobalUpdate], cut: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> Array:
    covered = np.stack([update.coverage[name] for update in updates])
    values = np.stack([update.delta[name] for update in updates]).astype(np.float64)
    values = np.sort(np.where(covered, values, np.inf), axis=0)  # what is not held goes last
    holders = covered.sum(axis=0)
    first = cut(holders)
    rank = np.arange(len(updates)).reshape(-1, *[1] * holders.ndim)
    inside = (rank >= first) & (rank < holders - first)
    total, count = np.where(inside, values, 0).sum(axis=0), inside.sum(axis=0)
    middle: NDArray[np.float64] = np.divide(total, count, out=np.zeros_like(total), where=count > 0)
    return middle.astype(np.float32)


def krum(*, byzantine: float = 0.2, keep: int = 1) -> Combiner:
    """The weighted mean of the `keep` updates closest to their neighbours (1: Krum, more: multi-Krum).

    `byzantine` is f, how many clients may be hostile: a share of the round's below 1, a count from 1 on. The
    paper's guarantee needs more than 2 f + 2 clients; a smaller round is combined without it. Weights only
    divide the result among those kept, equally where all are 0. What no kept client holds does not change:
    with unlike sub-models keep several.
    """
    if byzantine < 0 or (byzantine >= 1 and byzantine != int(byzantine)):
        raise ValueError("byzantine must be a share below 1 or a whole number of clients")
    if keep < 1:
        raise ValueError("keep must be at least 1")

    def combine(updates: Sequence[GlobalUpdate], weights: NDArray[np.float64]) -> Arrays:
        hostile = byzantine if byzantine >= 1 else math.floor(byzantine * len(updates) + 1e-9)
        kept = np.sort(np.argsort(krum_scores(updates, int(hostile)), kind="stable")[:keep])
        shares = weights[kept] if weights[kept].any() else np.ones(len(kept))
        return mean_over_holders([updates[index] for index in kept], shares)

    return combine


def krum_scores(updates: Sequence[GlobalUpdate], hostile: int) -> NDArray[np.float64]:
    """Per client [K], the sum of squared distances to its K - f - 2 nearest others (at least one)."""
    count = len(updates)
    squared = np.zeros((count, count))
    for i in range(count):
        for j in range(i):
            squared[i, j] = squared[j, i] = squared_distance(updates[i], updates[j])
    others = np.sort(squared + np.diag(np.full(count, np.inf)), axis=1)[:, : count - 1]
    scores: NDArray[np.float64] = others[:, : max(1, count - hostile - 2)].sum(axis=1)
    return scores


def squared_distance(one: GlobalUpdate, other: GlobalUpdate) -> float:
    """Over the coordinates that both hold, divided by the share of all coordinates that these are.

    So a pair with little in common is not close for that alone; with nothing in common it is infinitely far.
    """
    total, common, size = 0.0, 0, 0
    for name, delta in one.delta.items():
        both = one.held[name] & other.held[name]
        gap = np.where(both, delta.astype(np.float64) - other.delta[name], 0)
        total, common, size = total + float((gap**2).sum()), common + int(both.sum()), size + both.size
    return total * size / common if common else math.inf


COMBINERS: dict[str, Callable[..., Combiner]] = {
    "mean": mean,
    "overlap-mean": overlap_mean,
    "median": median,
    "trimmed-mean": trimmed_mean,
    "krum": krum,
}
IGNORES_WEIGHTS = frozenset({"median", "trimmed-mean", "krum"})
"""Those that do not let weights decide which values count."""
SUMS = frozenset({"mean"})
"""Those that are a sum over clients, divided by what is known beforehand (differential privacy)."""
