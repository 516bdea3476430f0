"""When a run opens rounds: at once, by the clock, or when the devices' data asks for it.

An opening is a number of rounds that follow each other; the first begins with the run. Round numbers alone
say where an opening begins, so that a restarted server needs no further state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from edge_server.rounds.fleet import Fleet

When = Literal["at-once", "every-s", "new-data", "drift"]


@dataclass(frozen=True)
class Demand:
    """What opens rounds: `needed` of something, of which there are `found`."""

    found: int = 0
    needed: int = 0
    what: str = ""

    @property
    def met(self) -> bool:
        return self.found >= self.needed

    def __str__(self) -> str:
        return f"{self.found} of {self.needed} {self.what}"


@dataclass(frozen=True)
class OpeningRules:
    """What opens the next `rounds` rounds, after the first ones, which are `first_rounds` or more.

    `every_s`: seconds since the last round. `new_examples`: number over all devices that may train.
    `drifting`: number of devices that report a drift.
    """

    when: When = "at-once"
    rounds: int = 1
    every_s: float = 3600.0
    new_examples: int = 100
    drifting: int = 1
    first_rounds: int = 0

    def begins(self, round_number: int) -> bool:
        later = round_number > max(1, self.first_rounds)
        return self.when != "at-once" and later and (round_number - 1) % self.rounds == 0

    def not_before(self, round_number: int, now: float) -> float:
        """The earliest time in seconds at which this round may be planned."""
        return now + self.every_s if self.when == "every-s" and self.begins(round_number) else now

    def demand(self, round_number: int, fleet: Fleet) -> Demand:
        """What this round waits for; one within an opening waits for nothing."""
        return DEMANDS[self.when](fleet, self) if self.begins(round_number) else Demand()


def _nothing(fleet: Fleet, rules: OpeningRules) -> Demand:
    return Demand()


def _new_data(fleet: Fleet, rules: OpeningRules) -> Demand:
    found = sum(device.data.new or 0 for device in fleet.able())
    return Demand(found, rules.new_examples, "new examples")


def _drift(fleet: Fleet, rules: OpeningRules) -> Demand:
    found = sum(device.data.drift is not None for device in fleet.able())
    return Demand(found, rules.drifting, "devices that report a drift")


DEMANDS: Mapping[When, Callable[[Fleet, OpeningRules], Demand]] = {
    "at-once": _nothing,
    "every-s": _nothing,
    "new-data": _new_data,
    "drift": _drift,
}  # What rounds wait for, by what opens them; the clock alone decides for "every-s"
