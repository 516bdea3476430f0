"""Which of several models a device exports: one rule, on examples that the device holds out.

Models are compared example by example, so that what is hard for all of them does not count as noise: by
their errors, and by their loss, which says more of few examples if no model is far too sure of itself.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_client.agent.rollout.acceptance import chance_of
from schemas.tensors.blobs import Arrays

MIN_EXAMPLES = 10
"""Held-out examples without which models are not compared."""
UNEVEN = 2.0
"""How many times more a device's classes differ from equally frequent ones than by chance."""
CHANCE = 1 / 6
"""A lead that is likelier than this by chance does not count: that of one standard error."""
MIN_RETAINED, MIN_GAIN = 0.25, 0.05
"""What a model retains of the shared one's answers at least, or what else it gains in accuracy."""
SHARED, HALFWAY, PERSONAL, ALONE = "shared", "halfway", "personal", "alone"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model's `errors` [N] and `losses` [N] on held-out examples, and its `figures` of merit.

    `retained` is the share of `blends` of the device's examples that it still calls what the shared model
    calls them, among those that are of classes which the device lacks there; None without any.
    """

    name: str
    arrays: Arrays
    errors: NDArray[np.float64]
    losses: NDArray[np.float64]
    figures: Mapping[str, float] = field(default_factory=dict)
    retained: float | None = None


def skew(labels: NDArray[np.int64], classes: int) -> float:
    """How far the labels' shares are from equal ones, as a multiple of what chance makes of equal classes.

    Of N labels the mean distance of a class's share p is sqrt(2 p (1 - p) / (pi N)).
    """
    even, count = 1 / classes, max(1, len(labels))
    distance = np.abs(np.bincount(labels, minlength=classes) / count - even).mean()
    return float(distance / math.sqrt(2 * even * (1 - even) / (math.pi * count))) if classes > 1 else 0.0


def beats(new: Candidate, kept: Candidate) -> bool:
    """Whether a model is better on more examples than worse, and that is more than chance.

    Either by a sign test, or since its mean loss is lower by more than a standard error of the differences.
    """
    better, worse = int((new.errors < kept.errors).sum()), int((new.errors > kept.errors).sum())
    return better > worse and (chance_of(better, worse) < CHANCE or _loses_less(new, kept))


def _loses_less(new: Candidate, kept: Candidate) -> bool:
    saved = kept.losses - new.losses
    return len(saved) > 1 and bool(saved.mean() > saved.std(ddof=1) / math.sqrt(len(saved)))


def forgets(new: Candidate, shared: Candidate) -> bool:
    """Whether a classifier has lost too much of what the shared one knows for what it has gained."""
    if new.retained is None or new.retained >= MIN_RETAINED:
        return False
    return bool((shared.errors - new.errors).mean() < MIN_GAIN)


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The model to export, of the shared one, which comes first, and others in the order of preference.

    A model takes the place of the one before it if it beats that and does not forget; the one halfway is
    tried only where the personal one is not kept.
    """
    shared = kept = candidates[0]
    for new in candidates[1:]:
        if new.name == HALFWAY and kept is not shared:
            continue
        if beats(new, kept) and not forgets(new, shared):
            kept = new
    return kept


def blends(inputs: NDArray[np.float32], seed: int) -> NDArray[np.float32]:
    """As many inputs again [N, ...], each on the line through two, up to their distance beyond them."""
    random = np.random.default_rng(seed)
    share = random.uniform(-1, 2, (len(inputs), *(1,) * (inputs.ndim - 1))).astype(np.float32)
    return share * inputs + (1 - share) * inputs[random.permutation(len(inputs))]
