"""The interface of a policy: a choice made each round, from the available devices and the policy's state.

Two pure functions: `act(state, clients, round, rng) -> choice` and `observe(state, result) -> state`.
A selection policy chooses devices, a ratio policy a pruning ratio per device.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from numpy.random import Generator

from edge_client.pruning.channel_selection import Ratio
from edge_client.system.plugins import Traits
from edge_server.strategy.aggregation.array_stores import MemoryArrays, NewArrayStore
from edge_server.strategy.aggregation.updates import GlobalUpdate
from edge_server.strategy.explanations import Observed
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays

Chosen = TypeVar("Chosen", covariant=True)
PolicyState = TypeVar("PolicyState")
Scores = Mapping[str, float]  # a score per device (AdaFL's attention)


class Arms(TypedDict):
    """A device's bandit: its last training loss, where its interval of ratios is split, and its pulls.

    A pull is a ratio that the device trained with, and its reward; the newest comes last.
    """

    loss: float | None
    splits: Sequence[float]
    pulls: Sequence[tuple[float, float]]


LearnedRatios = Mapping[str, Arms]  # a bandit per device (FedMP)
_NO_CHANNELS = ChannelMap(groups={}, parameters={})


@dataclass(frozen=True)
class Client:
    """A device as the strategy sees it: its tier (1 is the weakest) and its number of training examples."""

    name: str
    tier: int
    examples: int = 0


Clients = Sequence[Client]


class Noise(Protocol):
    """Noise for the sums of a group in one round, of `multiplier` times what an example changes them by."""

    @property
    def multiplier(self) -> float: ...
    def add_to(self, sums: Mapping[str, Any], sensitivity: float) -> dict[str, Any]:
        """The sums with noise."""


@dataclass(frozen=True, eq=False)
class RoundResult:
    """A closed round: its updates, the weight of each, the model before and after it.

    `clients` are all devices that the round could choose from. Go through `updates` once: each is computed
    when it is asked for. `keep` makes stores for the arrays of the next state. With `noise` a group's sums
    are read with it alone.
    """

    round: int
    updates: Sequence[GlobalUpdate]
    weights: Mapping[str, float]
    before: Arrays
    after: Arrays
    clients: Clients = ()
    channel_map: ChannelMap = _NO_CHANNELS
    keep: NewArrayStore = MemoryArrays
    noise: Noise | None = None


@dataclass(frozen=True)
class Explanation:
    """Why a device was chosen or not, for people, and the score that decided, if there is one."""

    because: str
    score: float | None = None


Explain = Callable[[str], Explanation]


@dataclass(frozen=True)
class PolicyTraits(Traits):
    """What a policy of either kind learns from rounds.

    `is_blind`: ignores their results (differential privacy); `is_steady`: its ratios never change;
    `compares_models`: compares the updates of a round with the model that came of them.
    """

    is_blind: bool = False
    is_steady: bool = False
    compares_models: bool = False


class Policy(Protocol, Generic[Chosen, PolicyState]):
    """A choice per round, and a state that learns from each result (None at first)."""

    def act(self, state: PolicyState, clients: Clients, number: int, rng: Generator) -> Chosen:
        """Choose among `clients`: a selection `number` of them, a ratio policy for round `number`."""
        ...

    def explain(self, state: PolicyState, clients: Clients, chosen: Collection[str]) -> Explain:
        """From a device's name to why `act` chose it or not, given the same state."""
        return lambda name: Explanation("chosen" if name in chosen else "not chosen this time")

    def observe(self, state: PolicyState, result: RoundResult) -> PolicyState:
        """Return the next state; by default nothing is learned."""
        return state

    def observations(self, state: PolicyState) -> Observed:
        """The part of the state that the run's history keeps."""
        return {}


SelectionPolicy = Policy[tuple[str, ...], Scores | None]  # chooses devices
RatioPolicy = Policy[dict[str, Ratio], LearnedRatios | None]  # chooses a pruning ratio per device
