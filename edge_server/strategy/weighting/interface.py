"""The interface of a weighting: how much each of a round's updates counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from edge_client.system.plugins import Traits
from edge_server.strategy.aggregation.updates import ClientUpdate, GlobalUpdate
from edge_server.strategy.explanations import MAX_SIMILAR, SimilarityTable
from edge_server.strategy.selection.interface import RoundResult
from schemas.tensors.arrays import Arrays

Weights = NDArray[np.float64]
Net = Mapping[str, NDArray[np.float64]]
"""FedRAD's NeuNet: `slope` and `bias` of the hidden layer [H], and `out` of the output layer [H]."""
LastUpdates = Mapping[str, Arrays]  # IGFL: the last update of every client, of the full shapes P
WeightingState = Net | LastUpdates | None
OwnState = TypeVar("OwnState")


class Need(Enum):
    """What a weighting looks at; loss and accuracy are of data that a device holds out."""

    EXAMPLES = auto()
    LOSS = auto()
    ACCURACY = auto()
    UPDATES = auto()


@dataclass(frozen=True)
class WeightingTraits(Traits):
    """What a weighting needs of a device, what it takes on trust, and what its weights allow.

    `counted`: `Weighting.counts` gives whole numbers, so that weighted sums can be exact. `masked`: the rule
    by which devices weigh what they mask (secure aggregation), None without one.
    """

    needs: frozenset[Need] = frozenset({Need.UPDATES})
    trusts: str = ""
    counted: bool = False
    masked: Literal["equal", "examples"] | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it ignores what devices send: a combiner that ignores weights loses nothing."""
        return self.needs <= {Need.EXAMPLES}

    @property
    def is_measured(self) -> bool:
        """Whether it goes by losses or accuracies that devices measure on data that they hold out."""
        return bool(self.needs & {Need.LOSS, Need.ACCURACY})


@dataclass(frozen=True, eq=False)
class WeighedUpdates:
    """Weights [K] and, if they were computed for them, the dot products of all pairs of updates [K, K]."""

    weights: Weights
    products: NDArray[np.float64] | None = None


SHARE_TRUST = "a device may count max-examples-factor times as much as the usual one"


class Weighting(Protocol, Generic[OwnState]):
    """Weights from the round's updates and the weighting's own state (None at first)."""

    def counts(self, sources: Sequence[ClientUpdate]) -> list[int] | None:
        """Whole numbers [K] in proportion to the weights, each of its own update; None without such."""
        return None

    def weigh(self, state: OwnState, updates: Sequence[GlobalUpdate]) -> Weights:
        """Weights [K], in the order of the updates."""
        ...

    def weigh_updates(self, state: OwnState, updates: Sequence[GlobalUpdate]) -> WeighedUpdates:
        """The same weights with the products computed for them."""
        return WeighedUpdates(self.weigh(state, updates))

    def observe(self, state: OwnState, result: RoundResult) -> OwnState:
        """Return the next state; by default nothing is learned."""
        return state


AnyWeighting = Weighting[Any]  # a weighting with the state of its own kind


def similarity(products: NDArray[np.float64], clients: Sequence[str]) -> SimilarityTable:
    """Cosine similarities from the products [K, K] of the first clients; 0 for an update that is zero."""
    few = products[:MAX_SIMILAR, :MAX_SIMILAR]
    lengths = np.sqrt(np.maximum(np.diag(few), 0))
    both = np.outer(lengths, lengths)
    cosines = np.divide(few, both, out=np.zeros_like(few), where=both > 0)
    rows = np.clip(cosines, -1, 1).round(4).tolist()
    return {"clients": list(clients[:MAX_SIMILAR]), "values": rows}
