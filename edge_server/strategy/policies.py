"""Policies: choices made anew each round, from the devices that are there and what earlier rounds showed.

A policy is two pure functions around its own state: `act(state, clients, round, rng) -> choice` and
`observe(state, result) -> state`. A selection chooses devices, a ratio policy a pruning ratio per device.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from edge_server.strategy.updates import GlobalUpdate
from schemas.blobs import Arrays

Choice = TypeVar("Choice", covariant=True)


@dataclass(frozen=True)
class Client:
    """What the strategy knows of a device: its tier (1 is the weakest) and how many examples it holds."""

    name: str
    tier: int
    examples: int = 0


@dataclass(frozen=True, eq=False)
class RoundResult:
    """What may be learned from a round: its updates, what each weighed, the model before and after it."""

    round: int
    updates: Sequence[GlobalUpdate]
    weights: Mapping[str, float]
    before: Arrays
    after: Arrays


class Policy(Protocol, Generic[Choice]):
    """A choice per round, and what is learned from the result."""

    def act(
        self, state: Any, clients: Sequence[Client], round_number: int, rng: np.random.Generator
    ) -> Choice:
        """Choose for round `round_number` among `clients`."""
        ...

    def observe(self, state: Any, result: RoundResult) -> Any:
        """Return the policy's next state."""
        ...


@dataclass(frozen=True)
class Uniform:
    """Selection: a share of the devices, each as likely as any other (McMahan et al. 2017)."""

    fraction: Callable[[int], float]

    def act(
        self, state: Any, clients: Sequence[Client], round_number: int, rng: np.random.Generator
    ) -> tuple[str, ...]:
        """Names of max(1, ceil(fraction * K)) devices, sorted."""
        names = sorted(client.name for client in clients)
        count = max(1, math.ceil(self.fraction(round_number) * len(names) - 1e-9))
        chosen = rng.choice(len(names), size=min(count, len(names)), replace=False)
        return tuple(names[index] for index in sorted(chosen))

    def observe(self, state: Any, result: RoundResult) -> Any:
        """Nothing is learned."""
        return state


@dataclass(frozen=True)
class ByTier:
    """Pruning ratio: that of the device's capability tier; `ratios[0]` is tier 1's."""

    ratios: tuple[float, ...]

    def act(
        self, state: Any, clients: Sequence[Client], round_number: int, rng: np.random.Generator
    ) -> dict[str, float]:
        """A ratio per device; a tier beyond the list counts as the last one."""
        return {client.name: self.ratios[min(client.tier, len(self.ratios)) - 1] for client in clients}

    def observe(self, state: Any, result: RoundResult) -> Any:
        """Nothing is learned."""
        return state


SELECTIONS: dict[str, Callable[..., Policy[tuple[str, ...]]]] = {
    "uniform": Uniform,
}

RATIOS: dict[str, Callable[..., Policy[dict[str, float]]]] = {
    "by-tier": ByTier,
}
