"""The work of a device that trains smaller widths in some of its steps, and the epochs that make up for it.

In a step of ordered dropout at a smaller width (Horvath et al. 2021) a device computes less than at its own
width. Further epochs take the multiply-accumulates that it saves.
"""

import math
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import cast

from schemas.strategy import Component

OBJECTIVE = "ordered-dropout"


def own_probability(objectives: Iterable[Component]) -> float | None:
    """The probability of a step at the device's own width; None where the recipe states none."""
    options = (objective.options for objective in objectives if objective.name == OBJECTIVE)
    return next((cast(float, found["own"]) for found in options if "own" in found), None)


def step_share(own: float, macs: int, smaller: Sequence[int]) -> float:
    """Multiply-accumulates of a mean step over those of a step at the device's own width.

    `own` is the probability of a step at the device's own width, of `macs`; the widths of `smaller` share the
    rest evenly.
    """
    return own + (1 - own) * fmean(smaller) / macs if smaller else 1.0


def equal_work_epochs(number: int, epochs: int, share: float) -> int:
    """The epochs of round `number` that make the work of `epochs` whole ones, at `share` of it per step.

    With equal `epochs` and `share` in all rounds, their sum over the rounds so far is the largest that does
    not exceed that work. In a single round they can exceed it by less than one epoch.
    """
    return _until(number, epochs, share) - _until(number - 1, epochs, share)


def _until(rounds: int, epochs: int, share: float) -> int:
    return math.floor(rounds * epochs / share + 1e-9)
