"""Pruning ratios learned per device by a bandit (FedMP; Jiang et al. 2022, ICDE, E-UCB).

FedMP: Federated Learning through Adaptive Model Pruning in Heterogeneous Edge Computing. An arm is an
interval of ratios; the discounted upper confidence bound is that of Garivier and Moulines (2011).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from numpy.random import Generator

from edge_client.pruning.channel_selection import Ratio, mean_ratio
from edge_server.strategy.aggregation.updates import sources_of
from edge_server.strategy.selection import interface

Arm = tuple[float, float]  # the interval of ratios from the first number up to, not including, the second
Pull = tuple[float, float]  # a ratio that a device trained with, and its reward
FADED = 1e-3  # pulls with less than this share of a new pull's weight are forgotten


@dataclass(frozen=True)
class Bandit(interface.RatioPolicy):
    """Pruning ratio: per device and round, drawn from the interval with the best upper bound (E-UCB).

    Intervals cover [the tier's ratio, `most`): a device never trains more than its tier allows. An interval
    longer than `threshold` (the paper's theta) is split at every ratio trained in it. Each later pull of the
    same device multiplies a pull's weight by `discount` (lambda); rounds without the device age nothing.

    Reward: the decrease of the device's training loss since its last round, over the distance of its time
    from the round's mean. Chosen here: the distance is a share of the mean time and at least `gap`, so that
    the reward has no unit and is bounded where times are alike; a first round earns nothing. The defaults
    are ours.
    """

    ratios: tuple[Ratio, ...]
    most: float = 0.8
    discount: float = 0.95
    threshold: float = 0.1
    gap: float = 0.1

    def __post_init__(self) -> None:
        if not 0 < self.most < 1:
            raise ValueError("most must be in (0, 1)")
        if not 0 < self.discount < 1:
            raise ValueError("discount must be in (0, 1)")
        if not (0 < self.threshold < math.inf and 0 < self.gap < math.inf):
            raise ValueError("threshold and gap must be above 0")

    def act(
        self, state: interface.LearnedRatios | None, clients: interface.Clients, number: int, rng: Generator
    ) -> dict[str, Ratio]:
        """A ratio per device; the order of `clients` is irrelevant."""
        chosen = {}
        for client in sorted(clients, key=lambda client: client.name):
            tier, own = self._tier(client), (state or {}).get(client.name, _NOTHING)
            choices = arms(mean_ratio(tier), self.most, own["splits"])
            low, high = best_arm(choices, own["pulls"], self.discount)
            chosen[client.name] = raise_ratio(tier, low + float(rng.random()) * (high - low))
        return chosen

    def observe(
        self, state: interface.LearnedRatios | None, result: interface.RoundResult
    ) -> interface.LearnedRatios:
        """Record each device's loss and, from its second round on, its pull and the split."""
        metrics = {source.client: source.metrics for source in sources_of(result.updates)}
        seconds = [measured["seconds"] for measured in metrics.values() if "seconds" in measured]
        mean_s = sum(seconds) / len(seconds) if seconds else 0.0
        lowest = {client.name: mean_ratio(self._tier(client)) for client in result.clients}
        after = dict(state or {})
        for name, measured in metrics.items():
            if {"ratio", "train_loss", "seconds"} <= measured.keys():
                known = after.get(name, _NOTHING)
                after[name] = self._learn_from_round(known, measured, mean_s, lowest.get(name, 0.0))
        return after

    def _learn_from_round(
        self, own: interface.Arms, measured: Mapping[str, float], mean_s: float, lowest: float
    ) -> interface.Arms:
        """One device's bandit after a round of `mean_s` seconds on average."""
        loss, ratio = measured["train_loss"], measured["ratio"]
        if own["loss"] is None:
            return {**own, "loss": loss}
        earned = reward(own["loss"] - loss, measured["seconds"], mean_s, self.gap)
        remembered = math.ceil(math.log(FADED) / math.log(self.discount))
        choices = arms(lowest, self.most, own["splits"])
        return {
            "loss": loss,
            "splits": split(own["splits"], choices, ratio, self.threshold),
            "pulls": (*own["pulls"], (ratio, earned))[-remembered:],
        }

    def _tier(self, client: interface.Client) -> Ratio:
        return self.ratios[min(client.tier, len(self.ratios)) - 1]


_NOTHING: interface.Arms = {"loss": None, "splits": (), "pulls": ()}


def reward(decrease: float, seconds: float, mean_s: float, least_gap: float) -> float:
    """The decrease of the loss, over the relative distance of the device's time from the mean time."""
    gap = abs(seconds - mean_s) / mean_s if mean_s > 0 else 0.0
    return decrease / max(gap, least_gap)


def arms(low: float, high: float, splits: Sequence[float]) -> list[Arm]:
    """The intervals from `low` to `high`, cut at `splits`; one empty interval if there is no room."""
    inside = sorted(cut for cut in splits if low < cut < high)
    return list(itertools.pairwise((low, *inside, max(low, high))))


def best_arm(choices: Sequence[Arm], pulls: Sequence[Pull], discount: float) -> Arm:
    """The interval with the largest discounted mean reward plus sqrt(2 ln n / N); the lowest of equals.

    Untried intervals come first. N is the discounted number of pulls in the interval, n that in all
    intervals; the newest pull counts 1, so n >= 1.
    """
    weights = [discount**age for age in range(len(pulls) - 1, -1, -1)]

    def bound(arm: Arm) -> float:
        found = [(w, pull[1]) for w, pull in zip(weights, pulls, strict=True) if _within(pull[0], arm)]
        count = sum(w for w, _ in found)
        if count == 0:
            return math.inf
        mean = sum(w * earned for w, earned in found) / count
        return mean + math.sqrt(2 * math.log(sum(weights)) / count)

    return max(choices, key=bound)


def split(
    splits: Sequence[float], choices: Sequence[Arm], ratio: float, threshold: float
) -> tuple[float, ...]:
    """The splits, plus `ratio` if it lies inside an interval longer than `threshold`."""
    for low, high in choices:
        if low < ratio < high and high - low > threshold:
            return tuple(sorted((*splits, ratio)))
    return tuple(splits)


def raise_ratio(tier: Ratio, ratio: float) -> Ratio:
    """The tier's ratio raised to the mean `ratio`; a table per layer shrinks 1 - p by the same factor."""
    if not isinstance(tier, Mapping):
        return ratio
    kept = (1 - ratio) / (1 - mean_ratio(tier))
    return {glob: 1 - kept * (1 - value) for glob, value in tier.items()}


def _within(ratio: float, arm: Arm) -> bool:
    return arm[0] <= ratio < arm[1]
