"""Which tier a device trains, from what is known of it: the largest that fits its memory and the deadline.

A device that states its tier has it. Of any other it is known what memory its process may still take and how
fast it was on a reference block; what a tier needs of both comes from the cost model. After a round its pace
is the one at which it has really trained, halfway from what was believed before. A device that had no memory
for its task gets one tier less than its memory speaks for, once for every time that it said so.

What a board needs for a network is told from multiply-accumulates and from bytes that are moved only up to a
factor of about three (tests/training_memory/README.md): enough for a first round, which then says better.
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


@dataclass(frozen=True)
class Speed:
    """Multiply-accumulates of training per second, and bytes of memory copied per second."""

    macs: float
    bytes: float


REFERENCE = Speed(10e9, 20e9)
"""A made-up board; the pace of every device that has trained is told as so many times its seconds."""


@dataclass(frozen=True)
class TrainingNeeds:
    """What training a tier's sub-model takes: bytes of memory, so many more per example; and per example the
    multiply-accumulates and the bytes moved.
    """

    bytes: int
    bytes_per_example: float
    macs: float
    moved: float

    def memory(self, examples: int) -> float:
        """Bytes on so many examples."""
        return self.bytes + self.bytes_per_example * examples

    def seconds(self, examples: float, speed: Speed) -> float:
        """For so many examples, each epoch's counted."""
        return examples * (self.macs / speed.macs + self.moved / speed.bytes)


@dataclass(frozen=True)
class Candidate:
    """What is known of a device. `guess` is its tier where its free memory (bytes) is not known.

    `speed` is what it has measured; `refusals`: how often it had no memory for a task.
    """

    name: str
    examples: int
    guess: int
    stated: int | None = None
    free: int | None = None
    speed: Speed | None = None
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

    `epochs` says how many a round asks for. The state is {device: its seconds per second of `REFERENCE`}, as
    trainings have shown.
    """

    needs: Sequence[TrainingNeeds]
    levels: Sequence[float]
    deadline_s: float
    epochs: Callable[[int], float] = field(default=lambda _: 1)

    def act(self, state: Any, clients: Sequence[Candidate], number: int) -> dict[str, int]:
        """A tier per device for round `number`, 1 being the weakest."""
        return {client.name: self._tier(client, (state or {}).get(client.name), number) for client in clients}

    def observe(self, state: Any, trained: Sequence[Trained]) -> Mapping[str, float]:
        """What a round's trainings have shown; their order is irrelevant."""
        paces = dict(state or {})
        for one in sorted(trained, key=lambda one: one.name):
            expected = self._between(one.ratio).seconds(one.examples * one.epochs, REFERENCE)
            if expected > 0 and one.seconds > 0:
                found = one.seconds / expected
                paces[one.name] = (paces[one.name] + found) / 2 if one.name in paces else found
        return paces

    def _tier(self, client: Candidate, pace: float | None, number: int) -> int:
        most = len(self.needs)
        if client.stated is not None:
            return min(client.stated, most)
        by_memory = self._by_memory(client) - client.refusals
        return max(1, min(by_memory, self._by_time(client, pace, number)))

    def _by_memory(self, client: Candidate) -> int:
        if client.free is None:
            return min(client.guess, len(self.needs))
        return _largest([MARGIN * one.memory(client.examples) <= client.free for one in self.needs])

    def _by_time(self, client: Candidate, pace: float | None, number: int) -> int:
        if pace is None and client.speed is None:
            return len(self.needs)
        count = client.examples * self.epochs(number)
        if pace is not None:
            times = [pace * one.seconds(count, REFERENCE) for one in self.needs]
        else:
            times = [one.seconds(count, client.speed or REFERENCE) for one in self.needs]
        return _largest([time <= DEADLINE_SHARE * self.deadline_s for time in times])

    def _between(self, ratio: float) -> TrainingNeeds:
        """The work of a sub-model with this ratio, which need be no tier's: between those of the nearest."""
        known = sorted(zip(self.levels, self.needs, strict=True), key=lambda pair: pair[0])
        ratios = [level for level, _ in known]
        macs = float(np.interp(ratio, ratios, [one.macs for _, one in known]))
        return TrainingNeeds(0, 0.0, macs, float(np.interp(ratio, ratios, [one.moved for _, one in known])))


def _largest(fitting: Sequence[bool]) -> int:
    """The largest tier that fits; the weakest where none does, for that is what can be tried."""
    return max((tier for tier, fits in enumerate(fitting, start=1) if fits), default=1)
