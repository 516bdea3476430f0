"""The shape of a weighting: how much each of a round's updates counts, and what was seen on the way there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import GlobalUpdate
from edge_server.strategy.explanations import MOST_SIMILAR
from edge_server.strategy.selection.policies import RoundResult

Weights = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeighedUpdates:
    """Weights [K] and, where they go by them, the dot products of all pairs of updates [K, K]."""

    weights: Weights
    products: NDArray[np.float64] | None = None


class Weighting(Protocol):
    """Weights from the round's updates, and from what earlier rounds left in the state (None at first).

    `measured`: they go by losses or accuracies that devices have measured, and not by examples alone.
    """

    measured: ClassVar[bool] = False

    def weigh(self, state: Any, updates: Sequence[GlobalUpdate]) -> Weights:
        """Weights [K], in the order of the updates."""
        ...

    def weighed(self, state: Any, updates: Sequence[GlobalUpdate]) -> WeighedUpdates:
        """The same weights with what was computed for them."""
        return WeighedUpdates(self.weigh(state, updates))

    def observe(self, state: Any, result: RoundResult) -> Any:
        """Return the next state; nothing is learned unless a weighting says so."""
        return state


def similarity(products: NDArray[np.float64], clients: Sequence[str]) -> dict[str, Any]:
    """The products [K, K] over the lengths of both updates, as plain data; 0 with an update that is zero.

    Of very many clients the first are in it.
    """
    few = products[:MOST_SIMILAR, :MOST_SIMILAR]
    lengths = np.sqrt(np.maximum(np.diag(few), 0))
    both = np.outer(lengths, lengths)
    cosines = np.divide(few, both, out=np.zeros_like(few), where=both > 0)
    rows = np.clip(cosines, -1, 1).round(4).tolist()
    return {"clients": list(clients[:MOST_SIMILAR]), "values": rows}
