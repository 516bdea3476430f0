"""What devices say of themselves, held to what is usual: no rule sees a number before it is cut here.

A device states how many examples it has, and what its losses and its accuracy are; a weighting, a selection
or a bandit goes by that. One that exaggerates counts as far as is usual among the others: `factor` medians,
or the median and some standard deviations by MAD. Nothing is refused here: unlike devices are honest, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, median_low

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.updates import ClientUpdate

FEWEST = 3
"""Among fewer nobody can say which is the odd one."""
SIGMA = 1.4826
"""A normal distribution's standard deviation over its MAD."""
SPREAD = 10.0
"""So many standard deviations from the median a number of examples may count as, or `factor` medians."""
GROWTH = 2
"""So many times the examples of its birth a device may train on, for data grows, or as many as is usual."""
SPREADS = {"train_loss": (9.0, 10.0, 1.0), "received_loss": (9.0, 10.0, 1.0), "accuracy": (1.0, 3.0, 0.0)}
"""How far from the median a figure may count: medians, standard deviations by MAD, or its own unit (nats).

Where a run has learned its data by heart the median of the losses is next to nothing, and a device of few
examples has many times that.
"""


@dataclass(frozen=True)
class Claims:
    """Bounds of what devices say: `most_examples` at all, and `factor` times the median of the others."""

    most_examples: float = math.inf
    factor: float = math.inf

    def examples(self, *groups: Iterable[int]) -> float:
        """The most examples that count, by those of several groups of devices; who has none says nothing."""
        most = max((self._most(counts) for counts in groups), default=0.0)
        return min(self.most_examples, most) if most else self.most_examples

    def _most(self, counts: Iterable[int]) -> float:
        """Some medians, or the median and some standard deviations: unlike devices hold unlike numbers."""
        known = [count for count in counts if count > 0]
        usual = _median(known)
        deviation = SIGMA * _median((abs(count - usual) for count in known), least=-1)
        return max(self.factor * usual, usual + SPREAD * deviation) if usual else 0.0

    def believed(
        self, updates: Sequence[ClientUpdate], births: Mapping[str, int]
    ) -> tuple[Sequence[ClientUpdate], Mapping[str, str]]:
        """The updates with figures that may count, and in words what was cut of whom.

        `births` are the examples of all clients that are known, as they counted at the last planning.
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

    def limited(self, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Weights [K] that sum to one, none more than is usual among those above 0, by the same measure."""
        heard = weights[weights > 0]
        if math.isinf(self.factor) or len(heard) == 0:
            return weights
        usual = _lower_middle(heard)
        deviation = SIGMA * _lower_middle(np.abs(heard - usual))
        most = max(self.factor * usual, usual + SPREAD * deviation)
        if float(heard.max()) <= most:
            return weights
        cut = np.minimum(weights, most)
        shares: NDArray[np.float64] = cut / cut.sum()
        return shares


def _lower_middle(values: NDArray[np.float64]) -> float:
    return float(np.sort(values)[(len(values) - 1) // 2])


def _median(counts: Iterable[int], least: int = 0) -> int:
    """Of those above `least`, one of them; 0 where there is none."""
    known = [count for count in counts if count > least]
    return median_low(known) if known else 0


def _range(updates: Sequence[ClientUpdate], name: str) -> tuple[float, float]:
    """The least and the most that a figure may count as; anything where too few state it."""
    known = [update.metrics[name] for update in updates if name in update.metrics]
    if len(known) < FEWEST:
        return -math.inf, math.inf
    usual = median(known)
    medians, deviations, least = SPREADS[name]
    spread = SIGMA * median(abs(value - usual) for value in known)
    away = max(medians * abs(usual), deviations * spread, least)
    return (max(usual - away, 0.0) if usual >= 0 else usual - away), usual + away


def _cut(update: ClientUpdate, limits: Mapping[str, tuple[float, float]]) -> tuple[ClientUpdate, str]:
    """The update within these limits, its steps as many as the examples that count; what was cut in words."""
    said = {**update.metrics, "examples": update.examples}
    held = {name: min(max(said[name], least), most) for name, (least, most) in limits.items() if name in said}
    changed = {name: value for name, value in held.items() if value != said[name]}
    if not changed:
        return update, ""
    words = ", ".join(f"{name} {said[name]:.6g} counts as {value:.6g}" for name, value in changed.items())
    if "examples" in changed:
        examples = changed["examples"] = int(changed["examples"])
        if "steps" in said:
            changed["steps"] = math.ceil(said["steps"] * examples / update.examples)
    metrics = {**update.metrics, **{name: value for name, value in changed.items() if name in update.metrics}}
    return replace(update, examples=int(held["examples"]), metrics=metrics), words
