"""Finds the updates of a round without which its model is better on the server's test data.

Loss function based rejection (Fang et al. 2020, "Local Model Poisoning Attacks to Byzantine-Robust Federated
Learning", section 5.1), with a loss that forgives a shift of the prior (`calibration`), and harm that adds up
over rounds (the cumulative sum of Page 1954): an honest device does harm by chance, and is useful after. Harm
counts more against the direction of the others (their cosine: Cao et al. 2021, "FLTrust", section 4): what
harms along it overshoots, or has other data.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edge_server.coordinator.validation.calibration import Calibration
from edge_server.strategy.aggregation.deltas import sum_weights
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.arrays import Arrays

MAX_PARTIES = 12  # Of more updates a single one moves the model too little
MAX_MACS = 5e10  # Most multiply-accumulates of a round's tests: about two seconds on two cores
USUAL = 0.15  # Harm of a round that is not added up, as a share of what is allowed
CREDIT = 0.4  # Most harm that being useful before makes up for, as such a share: a device may turn hostile
FLOOR = 0.5  # Added to the loss that harm is a share of, as a share of ignorance's: a small one is chance
COSINE = 0.3  # With this one to the others harm counts once: an honest device may have none of their classes
LEAST = 0.7  # Least that harm counts, or a liar would hide it in a long step along the others
EXTRAPOLATED = 2.0  # Times an update's effect where pictures are marked

WORDS = (
    "with it the loss on test data is higher by {:.0%}, marked pictures and its direction counted; "
    "with rounds before this adds up to {:.0%}"
)


class Closing(NamedTuple):
    """The model of a round, what it would be `without` one more party, and each party's cosine to the others.

    A cosine that is not known is missing.
    """

    model: Arrays
    without: Callable[[str], Arrays]
    cosines: Mapping[str, float]


Closed = Callable[[Set[str]], Closing]  # The round without these parties


class Loss(NamedTuple):
    """What a model loses on test data, infinite if not finite, and what more on marked pictures.

    `fit` makes the losses of similar models cheaper.
    """

    plain: float
    marked: float = 0.0
    fit: Calibration | None = None


class Sample(NamedTuple):
    """Test data: the `loss` of a model, given that of a similar one, and what one loses that knows nothing.

    `macs` are the multiply-accumulates of a test, in which pictures are `marked` as by a backdoor or not.
    """

    loss: Callable[[Arrays, Loss | None], Loss]
    ignorant: float
    macs: float
    marked: bool = False


@dataclass(frozen=True)
class Harm:
    """The harm of each party in a round, and the parties to leave out, with the reason in words."""

    harm: Mapping[str, float]
    refused: Mapping[str, str]


class LeaveOneOut:
    """The comparison of a round's model with those without one of its updates.

    Harm is by which share the loss is higher with it than without: where devices share little, each of them
    moves the loss far. It counts by the update's direction. `allowed` is what it may add up to.
    """

    def __init__(self, sample: Sample, allowed: float) -> None:
        self._sample, self._allowed = sample, allowed

    def at_once(self) -> "LeaveOneOut":
        """The comparison of a round after which no harm adds up: what a round may do as usual is allowed."""
        return LeaveOneOut(self._sample, USUAL * self._allowed)

    def is_affordable(self, parties: int) -> bool:
        """Whether a round of so many updates is compared; of two nobody says which is the better one."""
        return (
            3 <= parties <= MAX_PARTIES
            and (1 + self._sample.marked) * (parties + 1) * self._sample.macs <= MAX_MACS
        )

    def totals(self, rounds: Iterable[Mapping[str, float]]) -> dict[str, float]:
        """The harm that each party has added up to in these rounds."""
        totals: dict[str, float] = {}
        for found in rounds:
            totals |= {party: self._add_harm(totals.get(party, 0.0), harm) for party, harm in found.items()}
        return totals

    def find(
        self, parties: Set[str], before: Mapping[str, float], closed: Closed, suspects: Set[str] = frozenset()
    ) -> Harm:
        """The worst party first, until none has done too much harm; fewer than half are left out.

        Of `suspects` nothing adds up: they may do what harm a round may do as usual.
        """
        harms, refused = dict[str, float](), dict[str, str]()
        closing = closed(frozenset())
        while 2 * (len(refused) + 1) < len(parties):
            left = sorted(parties - refused.keys())
            loss = self._sample.loss(closing.model, None)
            harms |= {
                party: self._harm(closing.model, loss, closing.without(party))
                * weigh_direction(closing.cosines.get(party, COSINE))
                for party in left
            }
            totals = {party: self._add_harm(before.get(party, 0.0), harms[party]) for party in left}
            excess = {party: totals[party] - self._allowed for party in left}
            for party in suspects & excess.keys():
                excess[party] = max(excess[party], harms[party] - USUAL * self._allowed)
            worst = max(left, key=lambda party: (excess[party], harms[party]))
            if excess[worst] <= 0 or harms[worst] <= 0:
                break
            refused[worst] = WORDS.format(harms[worst], totals[worst])
            closing = closed(refused.keys())
        return Harm({party: round(harm, 4) for party, harm in sorted(harms.items())}, refused)

    def _add_harm(self, total: float, harm: float) -> float:
        """The next total: of a party that is refused nothing is forgiven, or it would soon be back."""
        most = self._allowed
        forgiven = USUAL * most if total <= most else 0.0
        return min(2 * most, max(-CREDIT * most, total + harm - forgiven))

    def _harm(self, whole: Arrays, loss: Loss, without: Arrays) -> float:
        """The harm of the update that only `whole` has, whose loss is given."""
        rest = self._sample.loss(without, loss)
        if rest.plain == math.inf:
            return 0.0 if loss.plain == math.inf else -1.0
        ignorant = self._sample.ignorant
        harm = (loss.plain - rest.plain) / (rest.plain + FLOOR * ignorant)
        if self._sample.marked:
            marked = self._sample.loss(_extrapolate_model(without, whole), loss).marked
            harm += (marked - rest.marked) / ignorant
        return min(1.0, max(-1.0, harm))


def weigh_direction(cosine: float) -> float:
    """How many times the harm of an update counts."""
    return max(LEAST, (1 - cosine) / (1 - COSINE))


def _extrapolate_model(without: Arrays, whole: Arrays) -> Arrays:
    """The model in which an update counts `EXTRAPOLATED` times as much: a backdoor takes rounds to grow."""
    return {
        name: np.asarray(array + EXTRAPOLATED * (whole[name] - array), array.dtype)
        for name, array in without.items()
    }


def model_without(
    index: int, updates: Sequence[GlobalUpdate], weights: Sequence[float], before: Arrays, after: Arrays
) -> Mapping[str, np.ndarray]:
    """The model without update `index` of a round that led from `before` to `after`.

    A weighted mean is linear: without update k, of weight w and change d, the mean change M of total weight S
    is (S M - w d) / (S - w). A coordinate that k alone covers does not move. It is an estimate where the
    combiner is no mean, channels decay that no update covers, or the server's optimizer has momentum.
    """
    left = updates[index]
    arrays = {}
    for name in after:
        index_sets = [update.coverage.index_set(name) for update in updates]
        if not any(index_set.size for index_set in index_sets):
            # Nobody trains it.
            arrays[name] = np.asarray(before[name])
            continue
        total = sum_weights(index_sets, weights)
        own = weights[index] * left.coverage[name]
        moved = np.asarray(after[name], np.float64) - before[name]
        rest = total - own
        change = (total * moved - own * np.asarray(left.delta[name])) / np.where(rest > 0, rest, 1.0)
        arrays[name] = np.asarray(before[name] + np.where(rest > 0, change, 0.0), after[name].dtype)
    return arrays
