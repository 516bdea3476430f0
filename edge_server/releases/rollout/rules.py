"""The rules of a rollout: the size of groups, when the next group opens, when the rollout stops."""

import math
import re
from typing import Annotated

from pydantic import Field, StringConstraints

from edge_server.releases.rollout.target import TargetStatus
from schemas.base import Frozen, Name
from schemas.messages import client_update, rollout
from schemas.values import Fraction, Seconds

SIZE_PATTERN = r"^(?:100|[1-9]?[0-9])(?:\.[0-9]+)?%$|^[1-9][0-9]{0,6}$"


class RolloutRules(Frozen):
    """Thresholds like those of Eclipse hawkBit's rollouts, per group, over its devices that are not away.

    - `canary`: the size of the first group, `10%` of the devices or a number of them;
    - `groups`: the number of groups of equal size for the other devices;
    - `success`: the share of a group that must have kept the model before the next group opens;
    - `error`: a larger share of failures in a group stops the rollout (by default 1 - success);
    - `at_once`: devices that fetch the model at the same time;
    - `expect`: devices to wait for before groups are formed, for at least `gather_s`;
    - `away_s`: seconds of silence before switching after which a device is excluded from its group;
    - `only`: only these devices (all, if empty);
    - `where`: only devices whose labels match this selector (all, if empty);
    - `silent_s`: seconds of silence beyond its watch after which a device that has switched has failed.
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
    where: str = ""
    terms: rollout.TrialTerms | client_update.UpdateTerms = rollout.TrialTerms.model_construct()

    def are_for(self, device: str) -> bool:
        return not self.only or device in self.only

    @property
    def is_partial(self) -> bool:
        """Whether the rollout is for some of the devices, so that its version is not that of all."""
        return bool(self.only or self.where)

    @property
    def most_failures(self) -> float:
        """The share of a group that may fail."""
        return 1 - self.success if self.error is None else self.error

    def patience_s(self, status: TargetStatus) -> float:
        """Seconds after which a device that reports nothing more counts as away or silent."""
        return self.terms.watch_s + self.silent_s if status is TargetStatus.WATCHING else self.away_s

    def canary_of(self, devices: int) -> int:
        """The size of the canary of this many devices: at least one."""
        share = self.canary.endswith("%")
        size = rounded_up(float(self.canary[:-1]) / 100 * devices) if share else int(self.canary)
        return min(devices, max(1, size))


def rounded_up(number: float) -> int:
    """Round up, tolerating floating-point error: 10% of 30 is 3, not 4."""
    return math.ceil(round(number, 9))


def is_size(text: str) -> bool:
    """Whether `text` is a percentage such as 10%, or a number of devices."""
    return re.fullmatch(SIZE_PATTERN, text) is not None
