"""Which tier a device trains, from what is known of it: the largest that fits its memory and the deadline.

A device that states its tier has it. Of any other it is known what memory its process may still take and how
fast it was on a reference block; what a tier needs of both comes from the cost model. After a round the speed
is the one at which the device has really trained, halfway from what was believed before. A device that had no
memory for its task gets one tier less than its memory speaks for, once for every time that it said so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MARGIN = 1.2
"""So much more memory than is predicted must be free: a device asks for as much itself."""
DEADLINE_SHARE = 0.5
"""Of a round's time for training; the rest is for what travels and what waits."""
PASSES = 3
"""A training step costs about three forward passes."""


@dataclass(frozen=True)
class Needs:
    """What training a tier's sub-model takes: bytes, so many more per example, MACs of a forward pass."""

    bytes: int
    bytes_per_example: float
    macs: int

    def memory(self, examples: int) -> float:
        """Bytes on so many examples."""
        return self.bytes + self.bytes_per_example * examples


@dataclass(frozen=True)
class Candidate:
    """What is known of a device. `guess` is its tier where its free memory (bytes) is not known.

    `speed` in MACs per second is what it has measured; `refusals`: how often it had no memory for a task.
    """

    name: str
    examples: int
    guess: int
    stated: int | None = None
    free: int | None = None
    speed: float | None = None
    refusals: int = 0


@dataclass(frozen=True)
class Trained:
    """One device's training in a round, as it was measured; `ratio` is its sub-model's."""

    name: str
    examples: int
    epochs: int
    seconds: float
    ratio: float


@dataclass(frozen=True)
class ByEvidence:
    """A policy: `needs` and `levels` (pruning ratios) are those of the tiers, the weakest first.

    `epochs` says how many a round asks for. The state is {device: MACs per second}, as trainings have shown.
    """

    needs: Sequence[Needs]
    levels: Sequence[float]
    deadline_s: float
    epochs: Callable[[int], float] = field(default=lambda _: 1)

    def act(self, state: Any, clients: Sequence[Candidate], number: int) -> dict[str, int]:
        """A tier per device for round `number`, 1 being the weakest."""
        return {client.name: self._tier(client, (state or {}).get(client.name), number) for client in clients}

    def observe(self, state: Any, trained: Sequence[Trained]) -> Mapping[str, float]:
        """What a round's trainings have shown; their order is irrelevant."""
        speeds = dict(state or {})
        for one in sorted(trained, key=lambda one: one.name):
            work = PASSES * self._macs(one.ratio) * one.examples * one.epochs
            if work > 0 and one.seconds > 0:
                found = work / one.seconds
                speeds[one.name] = (speeds[one.name] + found) / 2 if one.name in speeds else found
        return speeds

    def _tier(self, client: Candidate, shown: float | None, number: int) -> int:
        most = len(self.needs)
        if client.stated is not None:
            return min(client.stated, most)
        by_memory = self._by_memory(client) - client.refusals
        return max(1, min(by_memory, self._by_time(client, shown or client.speed, number)))

    def _by_memory(self, client: Candidate) -> int:
        if client.free is None:
            return min(client.guess, len(self.needs))
        fitting = [MARGIN * one.memory(client.examples) <= client.free for one in self.needs]
        return max((tier for tier, fits in enumerate(fitting, start=1) if fits), default=1)

    def _by_time(self, client: Candidate, speed: float | None, number: int) -> int:
        if speed is None:
            return len(self.needs)
        time = DEADLINE_SHARE * self.deadline_s
        work = PASSES * client.examples * self.epochs(number)
        in_time = [work * one.macs / speed <= time for one in self.needs]
        return max((tier for tier, fits in enumerate(in_time, start=1) if fits), default=1)

    def _macs(self, ratio: float) -> float:
        """Of a sub-model with this ratio, which need be no tier's: between those of the nearest."""
        known = sorted(zip(self.levels, (one.macs for one in self.needs), strict=True))
        ratios, macs = zip(*known, strict=True)
        return float(np.interp(ratio, ratios, macs))
