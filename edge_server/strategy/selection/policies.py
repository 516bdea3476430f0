"""The policies: which devices train in a round, and how much of the network each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_client.pruning.channel_selection import Ratio
from edge_server.strategy.aggregation.blocks import SUM_NUMBERS, as_rows, row_blocks
from edge_server.strategy.aggregation.updates import GlobalUpdate, sources_of
from edge_server.strategy.selection.bandit import Bandit
from edge_server.strategy.selection.interface import Client, Explanation, Policy, RoundResult

__all__ = ["RATIOS", "SELECTIONS", "Client", "Policy", "RoundResult"]


@dataclass(frozen=True)
class Uniform(Policy[tuple[str, ...]]):
    """Selection: a share of the devices, each as likely as any other (McMahan et al. 2017)."""

    def act(
        self, state: Any, clients: Sequence[Client], number: int, rng: np.random.Generator
    ) -> tuple[str, ...]:
        """Names of `number` devices, sorted."""
        names = sorted(client.name for client in clients)
        chosen = rng.choice(len(names), size=min(number, len(names)), replace=False)
        return tuple(names[index] for index in sorted(chosen))

    def explain(
        self, state: Any, clients: Sequence[Client], chosen: Collection[str]
    ) -> Callable[[str], Explanation]:
        """All are alike: the score is 1 / n."""
        drawn, count = f"{len(chosen)} of {len(clients)}, each alike", len(clients)
        if len(chosen) == count:
            return lambda name: Explanation(f"all {count} take part", 1 / count)
        words = {True: f"drawn: {drawn}", False: f"not drawn this time: {drawn}"}
        return lambda name: Explanation(words[name in chosen], 1 / count)


@dataclass(frozen=True)
class Attention(Policy[tuple[str, ...]]):
    """Selection: the further a client's model ends from the new global one, the likelier it is drawn next.

    AdaFL (Chen et al. 2021), section 2.2 and Algorithm 1. The state is a score per client, a probability
    vector over all that were ever there; at first a_k = n_k / n. A client that comes later gets the mean
    score per example of those that are there, times its own examples, and all are scaled to sum to one.
    """

    alpha: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ValueError("alpha must be in [0, 1)")

    def act(
        self, state: Any, clients: Sequence[Client], number: int, rng: np.random.Generator
    ) -> tuple[str, ...]:
        """Names of `number` devices, sorted, drawn one by one in proportion to score."""
        names = sorted(client.name for client in clients)
        scores = attention_scores(state or {}, {client.name: client.examples for client in clients})
        # Exponential times divided by the scores finish in the order of such draws; a score of 0 comes last.
        with np.errstate(divide="ignore"):
            times = rng.exponential(size=len(names)) / np.array([scores[name] for name in names])
        first = np.argsort(times, kind="stable")[:number]
        return tuple(names[index] for index in sorted(first))

    def explain(
        self, state: Any, clients: Sequence[Client], chosen: Collection[str]
    ) -> Callable[[str], Explanation]:
        """The scores that were drawn by, beside the mean of those that were there."""
        scores = attention_scores(state or {}, {client.name: client.examples for client in clients})
        mean = sum(scores[client.name] for client in clients) / max(1, len(clients))
        everyone = f"all {len(clients)} take part" if len(chosen) == len(clients) else ""

        def why(name: str) -> Explanation:
            drawn = everyone or ("drawn" if name in chosen else "not drawn this time")
            return Explanation(f"{drawn}: attention {scores[name]:.3g}, mean {mean:.3g}", scores[name])

        return why

    def observe(self, state: Any, result: RoundResult) -> Mapping[str, float]:
        """Equation 2: the selected share their scores' sum anew, by distance; the others keep theirs."""
        sent = {source.client: source.examples for source in sources_of(result.updates)}
        known = {client.name: client.examples for client in result.clients}
        scores = attention_scores(state or {}, {**sent, **known})
        distances = {update.source.client: distance(update, result) for update in result.updates}
        total, mass = sum(distances.values()), sum(scores[name] for name in distances)
        if total == 0:
            return scores
        return scores | {
            name: self.alpha * scores[name] + (1 - self.alpha) * d / total * mass
            for name, d in distances.items()
        }

    def observed(self, state: Any) -> Mapping[str, Any]:
        """The scores after the round."""
        return {"attention": dict(state or {})}


def attention_scores(known: Mapping[str, float], examples: Mapping[str, int]) -> dict[str, float]:
    """The scores of `known` and of all in `examples` together; no examples count as one."""
    counts = {name: max(1, count) for name, count in sorted(examples.items())}
    new = [name for name in counts if name not in known]
    if not new:
        return dict(known)
    old = [name for name in counts if name in known]
    here, held = (old, sum(known[name] for name in old)) if old else (new, 1.0)
    rate = held / sum(counts[name] for name in here)
    scores = {**known, **{name: rate * counts[name] for name in new}}
    total = sum(scores.values())
    return {name: score / total for name, score in scores.items()}


def distance(update: GlobalUpdate, result: RoundResult) -> float:
    """Equation 1 between unlike models: over what the client holds, by the root of its share of the model.

    Parameters of any shape; running statistics are parameters like others (DESIGN.md section 6, decision 5).
    """
    squares, held, size = 0.0, 0, 0
    for name in result.after:
        before, after = as_rows(result.before[name]), as_rows(result.after[name])
        for start, stop in row_blocks(after.shape, SUM_NUMBERS):
            reach = update.held.reach(name).rows(start, stop)[1]
            values, place = update.part(name, start, stop).within(reach)
            apart = place.of(before[start:stop]).astype(np.float64)
            apart += values
            np.subtract(place.of(after[start:stop]), apart, out=apart)
            squares += float(np.square(apart, out=apart).sum())
            held += reach.size
        size += after.size
    return math.sqrt(squares * size / held) if held else 0.0


@dataclass(frozen=True)
class ByTier(Policy[dict[str, Ratio]]):
    """Pruning ratio: that of the device's capability tier; `ratios[0]` is tier 1's."""

    ratios: tuple[Ratio, ...]

    def act(
        self, state: Any, clients: Sequence[Client], number: int, rng: np.random.Generator
    ) -> dict[str, Ratio]:
        """A ratio per device; a tier beyond the list counts as the last one."""
        return {client.name: self.ratios[min(client.tier, len(self.ratios)) - 1] for client in clients}


SELECTIONS: dict[str, Callable[..., Policy[tuple[str, ...]]]] = {
    "attention": Attention,
    "uniform": Uniform,
}

RATIOS: dict[str, Callable[..., Policy[dict[str, Ratio]]]] = {
    "bandit": Bandit,
    "by-tier": ByTier,
}
STEADY = frozenset({"by-tier"})
"""The ratios that stay the same from round to round."""
BLIND = frozenset({"by-tier", "uniform"})
"""Those of both kinds that never look at what a round brought (differential privacy)."""
