"""Bounds on what devices report about themselves; every component sees the bounded figures only.

A device reports its number of examples, its losses and its accuracy; weightings, selections and bandits
depend on them. A figure beyond the usual counts as the bound: `factor` medians, or the median plus some
standard deviations by MAD. Nothing is refused here: honest devices differ, too.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import ClientUpdate

MIN_CLIENTS = 3  # reports needed before any of them can be called unusual
SIGMA = 1.4826  # a normal distribution's standard deviation over its MAD
SPREAD = 10.0  # standard deviations above the median that examples may count as, or `factor` medians
GROWTH = 2  # times the examples of its birth that a device may train on (data grows), or the usual number
ACCURACY = "accuracy"
# How far from the median a figure may count: medians, standard deviations by MAD, or at least so much. The
# last is there for medians and MADs of 0. In overfitted runs the median loss is near 0, and a device of few
# examples has many times that (1 nat). Accuracies of few examples are often equal: 0.5 are three standard
# errors of a half measured on nine.
SPREADS = {"train_loss": (9.0, 10.0, 1.0), "received_loss": (9.0, 10.0, 1.0), ACCURACY: (1.0, 3.0, 0.5)}


@dataclass(frozen=True)
class Claims:
    """Bounds on reports: at most `most_examples`, and `factor` times the median of the others."""

    most_examples: float = math.inf
    factor: float = math.inf

    def examples(self, *groups: Iterable[int]) -> float:
        """The most examples that count, given the counts of several groups; zeros are ignored."""
        most = max((self._most(counts) for counts in groups), default=0.0)
        return min(self.most_examples, most) if most else self.most_examples

    def _most(self, counts: Iterable[float]) -> float:
        """`factor` medians, or the median plus `SPREAD` standard deviations, whichever is more."""
        known = [count for count in counts if count > 0]
        usual = _median(known)
        deviation = SIGMA * _median((abs(count - usual) for count in known), least=-1)
        return max(self.factor * usual, usual + SPREAD * deviation) if usual else 0.0

    def bound_figures(
        self, updates: Sequence[ClientUpdate], births: Mapping[str, int]
    ) -> tuple[Sequence[ClientUpdate], Mapping[str, str]]:
        """The updates with bounded figures, and by client, in words, what was bounded.

        `births` are the examples of all known clients, as counted at their last planning.
        """
        sent = {update.client: update.examples for update in updates}
        if math.isinf(self.factor):
            return updates, {}
        most, usual = self.examples(sent.values(), births.values()), _median(sent.values())
        ranges = {name: _range(updates, name) for name in SPREADS}
        made, cut = [], {}
        for update in updates:
            grown = max(GROWTH * births.get(update.client, update.examples), usual)
            believed, words = _cut(update, {**ranges, "examples": (0.0, min(most, grown))})
            made.append(believed)
            if words:
                cut[update.client] = words
        return made, cut

    def limit_weights(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights [K] that sum to one, bounded in the same way by those above 0."""
        most = self._most(weights.tolist())
        if math.isinf(self.factor) or float(weights.max(initial=0)) <= most:
            return weights
        cut = np.minimum(weights, most)
        return np.asarray(cut / cut.sum())


def _median(counts: Iterable[float], least: int = 0) -> float:
    """The lower median of the counts above `least`; 0 if there is none."""
    known = [count for count in counts if count > least]
    return median_low(known) if known else 0


def _range(updates: Sequence[ClientUpdate], name: str) -> tuple[float, float]:
    """The least and the most that a figure may count as; unbounded if too few devices report it."""
    reported = [update.metrics[name] for update in updates if name in update.metrics]
    if len(reported) < MIN_CLIENTS:
        return -math.inf, math.inf
    above = [value for value in reported if value > 0]
    if name == ACCURACY and len(above) >= MIN_CLIENTS:
        # Devices of classes that a model never answers have 0: this says nothing about the others.
        reported = above
    usual = median(reported)
    medians, deviations, least = SPREADS[name]
    spread = SIGMA * median(abs(value - usual) for value in reported)
    away = max(medians * abs(usual), deviations * spread, least)
    return (max(usual - away, 0.0) if usual >= 0 else usual - away), usual + away


def _cut(update: ClientUpdate, limits: Mapping[str, tuple[float, float]]) -> tuple[ClientUpdate, str]:
    """The update within these limits, its steps in proportion to its examples; and in words what changed."""
    sent = {**update.metrics, "examples": update.examples}
    held = {name: min(max(sent[name], least), most) for name, (least, most) in limits.items() if name in sent}
    changed = {name: value for name, value in held.items() if value != sent[name]}
    if not changed:
        return update, ""
    words = ", ".join(f"{name} {sent[name]:.6g} counts as {value:.6g}" for name, value in changed.items())
    if "examples" in changed:
        examples = changed["examples"] = int(changed["examples"])
        if "steps" in sent:
            changed["steps"] = math.ceil(sent["steps"] * examples / update.examples)
    metrics = {**update.metrics, **{name: value for name, value in changed.items() if name in update.metrics}}
    return replace(update, examples=int(held["examples"]), metrics=metrics), words
