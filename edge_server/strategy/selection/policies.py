"""The policies by name: which devices train in a round, and with which pruning ratio."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.random import Generator

from edge_client.pruning.channel_selection import Ratio
from edge_client.system.plugins import Registry, TraitRegistry
from edge_server.strategy.aggregation.blocks import SUM_NUMBERS, as_rows, row_blocks
from edge_server.strategy.aggregation.updates import GlobalUpdate, sources_of
from edge_server.strategy.explanations import Observed
from edge_server.strategy.selection.bandit import Bandit
from edge_server.strategy.selection.interface import (
    Client,
    Clients,
    Explain,
    Explanation,
    LearnedRatios,
    Policy,
    PolicyTraits,
    RatioPolicy,
    RoundResult,
    Scores,
    SelectionPolicy,
)

# Schedules: a value for each round, counted from 1.

Schedule = Callable[[int], float]


def constant(value: float = 1.0) -> Schedule:
    """The same value in every round."""
    return lambda round_number: value


def step_up(start: float = 0.1, end: float = 0.5, steps: int = 5, rounds: int = 10) -> Schedule:
    """`steps` equally spaced values from `start` to `end`, each for as many rounds (AdaFL, section 2.3).

    The run provides `rounds`. If they do not divide evenly, steps differ by one round; with fewer rounds
    than steps each round is a step; later rounds stay at `end`.
    """
    if not (start > 0 and end > 0 and steps >= 1):
        raise ValueError("start and end must be positive, and steps at least 1")
    count = min(steps, rounds)
    # Rounded to 0.3, not 0.30000000000000004.
    values = [round(start + (end - start) * step / max(1, count - 1), 12) for step in range(count)]
    return lambda round_number: values[min((round_number - 1) * count // rounds, count - 1)]


def random_intervals(
    interval: int = 5, epochs: int | None = None, rounds: int = 10, seed: int = 0
) -> Schedule:
    """Local epochs between two rounds: `interval` in the first half, then random (FedRAD, section 3.1).

    At most `epochs` in total (E; by default `interval` times the run's `rounds`); rounds after that have
    `interval` again. The run provides `rounds` and `seed`.
    """
    total = interval * rounds if epochs is None else epochs
    if not 1 <= interval <= total:
        raise ValueError("interval must be at least 1, and epochs at least interval")
    listed = intervals(interval, total, np.random.default_rng(seed))
    return lambda round_number: listed[round_number - 1] if round_number <= len(listed) else interval


def intervals(f: int, epochs: int, rng: np.random.Generator) -> tuple[int, ...]:
    """FedRAD, Algorithm 1: floor(E / 2f) times f, then differences of random epochs, one of every f.

    DESIGN.md section 6, decision 6: each lies between 1 and 2f - 1, and they add up to E at most. (The +1 of
    Algorithm 1's lines 5 and 8 would break both, which section 3.1 states.)
    """
    fixed, windows = epochs // (2 * f), epochs // f
    chosen = [f * window + int(rng.integers(1, f + 1)) for window in range(fixed, windows)]
    differences = [later - earlier for earlier, later in pairwise([f * fixed, *chosen])]
    return (f,) * fixed + tuple(differences)


SCHEDULES: Registry[Callable[..., Schedule]] = Registry(
    "schedule", {"constant": constant, "random-intervals": random_intervals, "step-up": step_up}
)


__all__ = ["RATIOS", "SELECTIONS", "Client", "Policy", "RoundResult"]


@PolicyTraits(is_blind=True)
@dataclass(frozen=True)
class Uniform(SelectionPolicy):
    """Selection: a share of the devices, each as likely as any other (McMahan et al. 2017)."""

    def act(self, state: Scores | None, clients: Clients, number: int, rng: Generator) -> tuple[str, ...]:
        names = sorted(client.name for client in clients)
        chosen = rng.choice(len(names), size=min(number, len(names)), replace=False)
        return tuple(names[index] for index in sorted(chosen))

    def explain(self, state: Scores | None, clients: Clients, chosen: Collection[str]) -> Explain:
        drawn, count = f"{len(chosen)} of {len(clients)}, each alike", len(clients)
        if len(chosen) == count:
            return lambda name: Explanation(f"all {count} take part", 1 / count)
        words = {True: f"drawn: {drawn}", False: f"not drawn this time: {drawn}"}
        return lambda name: Explanation(words[name in chosen], 1 / count)


@dataclass(frozen=True)
class LargestTier(Uniform):
    """Selection: only devices of the strongest tier that is present, each as likely as any other.

    The control of every method for unlike devices: what the strongest devices reach without the others.
    """

    def act(self, state: Scores | None, clients: Clients, number: int, rng: Generator) -> tuple[str, ...]:
        return super().act(state, _strongest(clients), number, rng)

    def explain(self, state: Scores | None, clients: Clients, chosen: Collection[str]) -> Explain:
        strongest = _strongest(clients)
        names, drawn = {client.name for client in strongest}, super().explain(state, strongest, chosen)
        return lambda name: drawn(name) if name in names else Explanation("its tier does not take part", 0.0)


def _strongest(clients: Clients) -> Sequence[Client]:
    highest = max((client.tier for client in clients), default=0)
    return [client for client in clients if client.tier == highest]


@PolicyTraits(compares_models=True)
@dataclass(frozen=True)
class Attention(SelectionPolicy):
    """Selection: the further a client's model ends from the new global one, the likelier it is drawn next.

    AdaFL (Chen et al. 2021), section 2.2 and Algorithm 1. The state is a score per client, a probability
    vector over all clients ever seen; at first a_k = n_k / n. A later client gets the mean score per example
    of the present clients, times its own examples; then all scores are scaled to sum to one.
    """

    alpha: float = 0.9

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ValueError("alpha must be in [0, 1)")

    def act(self, state: Scores | None, clients: Clients, number: int, rng: Generator) -> tuple[str, ...]:
        """Names of `number` devices, sorted, drawn one by one in proportion to score."""
        names = sorted(client.name for client in clients)
        scores = attention_scores(state or {}, {client.name: client.examples for client in clients})
        # Exponential times divided by the scores finish in the order of such draws; a score of 0 comes last.
        with np.errstate(divide="ignore"):
            times = rng.exponential(size=len(names)) / np.array([scores[name] for name in names])
        first = np.argsort(times, kind="stable")[:number]
        return tuple(names[index] for index in sorted(first))

    def explain(self, state: Scores | None, clients: Clients, chosen: Collection[str]) -> Explain:
        scores = attention_scores(state or {}, {client.name: client.examples for client in clients})
        mean = sum(scores[client.name] for client in clients) / max(1, len(clients))
        everyone = f"all {len(clients)} take part" if len(chosen) == len(clients) else ""

        def why(name: str) -> Explanation:
            drawn = everyone or ("drawn" if name in chosen else "not drawn this time")
            return Explanation(f"{drawn}: attention {scores[name]:.3g}, mean {mean:.3g}", scores[name])

        return why

    def observe(self, state: Scores | None, result: RoundResult) -> Scores:
        """Equation 2: redistribute the selected clients' total score by distance; the others keep theirs."""
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

    def observations(self, state: Scores | None) -> Observed:
        return {"attention": dict(state or {})}


def attention_scores(known: Mapping[str, float], examples: Mapping[str, int]) -> dict[str, float]:
    """The scores of all clients in `known` and in `examples`; a client without examples counts as one."""
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
    """Equation 1 for sub-models: the distance over the coordinates held, by the root of their share of all.

    Running statistics are parameters like others (DESIGN.md section 6, decision 5).
    """
    squares, held, size = 0.0, 0, 0
    for name in result.after:
        before, after = as_rows(result.before[name]), as_rows(result.after[name])
        for start, stop in row_blocks(after.shape, SUM_NUMBERS):
            reach = update.held.index_set(name).slice_rows(start, stop)[1]
            values, place = update.part(name, start, stop).within(reach)
            apart = place.take(before[start:stop]).astype(np.float64)
            apart += values
            np.subtract(place.take(after[start:stop]), apart, out=apart)
            squares += float(np.square(apart, out=apart).sum())
            held += reach.size
        size += after.size
    return math.sqrt(squares * size / held) if held else 0.0


@PolicyTraits(is_blind=True, is_steady=True)
@dataclass(frozen=True)
class ByTier(RatioPolicy):
    """Pruning ratio of the device's capability tier; `ratios[0]` is tier 1's."""

    ratios: tuple[Ratio, ...]

    def act(
        self, state: LearnedRatios | None, clients: Clients, number: int, rng: Generator
    ) -> dict[str, Ratio]:
        """A ratio per device; a tier beyond the list counts as the last one."""
        return {client.name: self.ratios[min(client.tier, len(self.ratios)) - 1] for client in clients}


SELECTIONS: TraitRegistry[Callable[..., SelectionPolicy], PolicyTraits] = TraitRegistry(
    "selection", PolicyTraits, {"attention": Attention, "largest-tier": LargestTier, "uniform": Uniform}
)

RATIOS: TraitRegistry[Callable[..., RatioPolicy], PolicyTraits] = TraitRegistry(
    "ratio", PolicyTraits, {"bandit": Bandit, "by-tier": ByTier}
)
