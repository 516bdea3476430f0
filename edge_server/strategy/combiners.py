"""Combiners: from K updates and their weights to one change of the global model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.updates import GlobalUpdate
from schemas.blobs import Arrays

Combiner = Callable[[Sequence[GlobalUpdate], NDArray[np.float64]], Arrays]
"""`(updates, weights [K]) -> change of each parameter, of its full shape P`."""


def mean() -> Combiner:
    """The weighted mean over the clients that hold a coordinate; no change where nobody does."""
    return mean_over_holders


def mean_over_holders(updates: Sequence[GlobalUpdate], weights: NDArray[np.float64]) -> Arrays:
    """Sum of w_k delta_k over sum of w_k, per coordinate, accumulated in double precision."""
    return {name: _mean(name, updates, weights) for name in updates[0].delta}


def _mean(name: str, updates: Sequence[GlobalUpdate], weights: NDArray[np.float64]) -> NDArray[np.float32]:
    total = np.zeros(updates[0].delta[name].shape)
    mass = np.zeros_like(total)
    for update, weight in zip(updates, weights, strict=True):
        covered = update.coverage[name]
        total += weight * np.where(covered, update.delta[name], 0)
        mass += weight * covered
    return np.divide(total, mass, out=np.zeros_like(total), where=mass > 0).astype(np.float32)


COMBINERS: dict[str, Callable[..., Combiner]] = {
    "mean": mean,
}
