"""Weightings: how much each client's update counts; K clients give K weights that sum to one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.updates import GlobalUpdate

Weighting = Callable[[Any, Sequence[GlobalUpdate]], NDArray[np.float64]]
"""`(state, updates) -> [K]`."""


def examples() -> Weighting:
    """By number of local examples, |D_k| / |D| (McMahan et al. 2017; ATTENDING, Algorithm 2 line 8)."""
    return weigh_by_examples


def weigh_by_examples(state: Any, updates: Sequence[GlobalUpdate]) -> NDArray[np.float64]:
    """Weights `[K]`; equal ones when no client has any example."""
    counts = np.array([update.source.examples for update in updates], dtype=np.float64)
    if counts.sum() == 0:
        counts = np.ones_like(counts)
    shares: NDArray[np.float64] = counts / counts.sum()
    return shares


WEIGHTINGS: dict[str, Callable[..., Weighting]] = {
    "examples": examples,
}
