"""The rules of a rollout: who goes first, when the next group may follow, when all of it is stopped."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import Field, StringConstraints

from schemas.base import Frozen
from schemas.messages.rollout_terms import TrialTerms
from schemas.names import Name
from schemas.values import Fraction, Seconds

SIZE_PATTERN = r"^(?:100|[1-9]?[0-9])(?:\.[0-9]+)?%$|^[1-9][0-9]{0,6}$"


class RolloutRules(Frozen):
    """Thresholds are those of Eclipse hawkBit's rollouts, per group, over its devices that are there.

    - `canary`: the size of the first group, `10%` of the devices or a number of them;
    - `groups`: into how many groups of the same size the others are split;
    - `success`: the share of a group that must have kept the model before the next one is opened;
    - `error`: more failures than this share of a group stop the rollout (unless stated, 1 - success);
    - `at_once`: so many devices fetch the model at the same time;
    - `expect`: so many devices are waited for before the groups are formed, and all for `gather_s` at least;
    - `away_s`: a device that is not heard of for so long before it has switched is left out of its group;
    - `only`: these devices and no others (all, where none is named);
    - `silent_s`: one that has switched, and is not heard of for so long beyond its watch, has failed.
    """

    canary: Annotated[str, StringConstraints(pattern=SIZE_PATTERN)] = "10%"
    groups: int = Field(default=2, ge=1, le=100)
    success: Fraction = 0.95
    error: Fraction | None = None
    at_once: int = Field(default=32, ge=1, le=10_000)
    expect: int = Field(default=1, ge=1, le=1_000_000)
    gather_s: Seconds = 5.0
    away_s: Seconds = 600.0
    silent_s: Seconds = 300.0
    only: tuple[Name, ...] = ()
    terms: TrialTerms = TrialTerms.model_construct()

    def are_for(self, device: str) -> bool:
        """Whether the rollout is to this device."""
        return not self.only or device in self.only

    @property
    def most_failures(self) -> float:
        """The share of a group that may fail."""
        return 1 - self.success if self.error is None else self.error

    def canary_of(self, devices: int) -> int:
        """How many of so many devices go first: one at least, and never more than there are."""
        share = self.canary.endswith("%")
        size = rounded_up(float(self.canary[:-1]) / 100 * devices) if share else int(self.canary)
        return min(devices, max(1, size))


def rounded_up(number: float) -> int:
    """The next whole number, where 10% of 30 devices are three and not, by a hair, four."""
    return math.ceil(round(number, 9))


def is_size(text: str) -> bool:
    """Whether `text` is a share such as 10%, or a number of devices."""
    return re.fullmatch(SIZE_PATTERN, text) is not None
