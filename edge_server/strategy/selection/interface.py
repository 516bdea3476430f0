"""The shape of a policy: a choice made anew each round, from the devices that are there and what was learned.

Two pure functions around a state of the policy's own: `act(state, clients, round, rng) -> choice` and
`observe(state, result) -> state`. A selection chooses devices, a ratio policy a pruning ratio per device.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Arrays

Choice = TypeVar("Choice", covariant=True)
_NO_CHANNELS = ChannelMap(groups={}, parameters={})


@dataclass(frozen=True)
class Client:
    """What the strategy knows of a device: its tier (1 is the weakest) and how many examples it holds."""

    name: str
    tier: int
    examples: int = 0


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What may be learned from a round: its updates, what each weighed, the model before and after it.

    `clients` are all whom the round could choose from. Updates are worth going through once, not twice: each
    is made anew when it is asked for. `keep` gives places for what the next state holds.
    """

    round: int
    updates: Sequence[GlobalUpdate]
    weights: Mapping[str, float]
    before: Arrays
    after: Arrays
    clients: Sequence[Client] = ()
    channel_map: ChannelMap = _NO_CHANNELS
    keep: NewArrayStore = MemoryArrays


@dataclass(frozen=True)
class Explanation:
    """Why a device was chosen or not, in words for people, and the number that it went by, if any."""

    because: str
    score: float | None = None


class Policy(Protocol, Generic[Choice]):
    """A choice per round, and what is learned from the result."""

    def act(self, state: Any, clients: Sequence[Client], number: int, rng: np.random.Generator) -> Choice:
        """Choose among `clients`: a selection `number` of them, a ratio policy for round `number`."""
        ...

    def explain(
        self, state: Any, clients: Sequence[Client], chosen: Collection[str]
    ) -> Callable[[str], Explanation]:
        """Why of `clients` those in `chosen` were: from a name to what `act` went by with the same state."""
        return lambda name: Explanation("chosen" if name in chosen else "not chosen this time")

    def observe(self, state: Any, result: RoundResult) -> Any:
        """Return the policy's next state (None at first); nothing is learned unless a policy says so."""
        return state

    def observed(self, state: Any) -> Mapping[str, Any]:
        """What of the state belongs into the run's history."""
        return {}
