"""The tier that a device trains: the largest that fits its memory and the round's deadline.

A device that states its tier gets it. Any other reports how much memory its process may still take, and its
speed on a reference block with each of its trainers; the cost models say what each tier needs of both. A
device with several trainers uses the first with which some tier fits. After a round the device's pace moves
halfway to the pace at which it trained. Each time a device declines a task for lack of memory, it gets one
tier less than its memory allows; below the smallest tier of a trainer comes the largest of the next.

Multiply-accumulates and bytes moved predict a board's training time only up to a factor of about three
(tests/training_memory/README.md): enough for a first round, whose measurement then corrects it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from schemas.values import TrainerName

MARGIN = 1.2  # free memory required over the predicted memory; devices apply the same factor
DEADLINE_SHARE = 0.5  # share of a round's time for training; the rest is for transfers and queues


@dataclass(frozen=True)
class Speed:
    """Multiply-accumulates of training per second, and bytes of memory copied per second."""

    macs: float
    bytes: float


REFERENCE = Speed(10e9, 20e9)  # a fictitious board: a device's pace is its training time over this board's


@dataclass(frozen=True)
class MemoryNeeds:
    """Memory of a training with one trainer: `bytes` plus `bytes_per_example`."""

    bytes: int
    bytes_per_example: float

    def total(self, examples: int) -> float:
        return self.bytes + self.bytes_per_example * examples


@dataclass(frozen=True)
class TrainingNeeds:
    """What training a tier's sub-model takes.

    `memory` is by trainer. Per example `macs` (multiply-accumulates) and bytes `moved`.
    """

    memory: Mapping[TrainerName, MemoryNeeds]
    macs: float
    moved: float

    def seconds(self, examples: float, speed: Speed) -> float:
        """Seconds for this number of examples, counted once per epoch."""
        return examples * (self.macs / speed.macs + self.moved / speed.bytes)


@dataclass(frozen=True)
class Means:
    """What a device has for training with one trainer: `free` memory in bytes, and its measured speed."""

    trainer: TrainerName = "torch"
    free: int | None = None
    speed: Speed | None = None


@dataclass(frozen=True)
class Candidate:
    """What is known of a device, with its trainers, the best first.

    `guess` is its tier if its free memory is unknown; `refusals` counts the tasks that it declined for lack
    of memory.
    """

    name: str
    examples: int
    guess: int
    means: tuple[Means, ...] = (Means(),)
    stated: int | None = None
    refusals: int = 0


@dataclass(frozen=True)
class Placement:
    """A device's tier, and the trainer that it uses."""

    tier: int
    trainer: TrainerName


@dataclass(frozen=True)
class Trained:
    """One device's measured training in a round; `ratio` is its sub-model's pruning ratio.

    `epochs` counts those with all steps at the device's own width.
    """

    name: str
    examples: int
    epochs: float
    seconds: float
    ratio: float


@dataclass(frozen=True)
class ByEvidence:
    """A policy: `needs` and `levels` (pruning ratios) of the tiers, the weakest first.

    `epochs` gives the local epochs of a round. The state is the pace of each device that has trained:
    its seconds per second of `REFERENCE`.
    """

    needs: Sequence[TrainingNeeds]
    levels: Sequence[float]
    deadline_s: float
    epochs: Callable[[int], float] = field(default=lambda _: 1)

    def act(
        self, state: Mapping[str, float] | None, clients: Sequence[Candidate], number: int
    ) -> dict[str, Placement]:
        """A tier and a trainer per device for round `number`, tier 1 being the weakest."""
        return {
            client.name: self._place(client, (state or {}).get(client.name), number) for client in clients
        }

    def observe(self, state: Mapping[str, float] | None, trained: Sequence[Trained]) -> Mapping[str, float]:
        paces = dict(state or {})
        for training in sorted(trained, key=lambda training: training.name):
            name, examples = training.name, training.examples * training.epochs
            expected = self._between(training.ratio).seconds(examples, REFERENCE)
            if expected > 0 and training.seconds > 0:
                pace = training.seconds / expected
                paces[name] = (paces[name] + pace) / 2 if name in paces else pace
        return paces

    def _place(self, client: Candidate, pace: float | None, number: int) -> Placement:
        most = len(self.needs)
        if client.stated is not None:
            return Placement(min(client.stated, most), client.means[0].trainer)
        means, by_memory = self._by_memory(client)
        by_time = self._by_time(client, means.speed, pace, number)
        return Placement(max(1, min(by_memory, by_time)), means.trainer)

    def _by_memory(self, client: Candidate) -> tuple[Means, int]:
        """The first trainer with which a tier fits, after all refusals, and the largest such tier."""
        refusals = client.refusals
        for means in client.means:
            tiers = self._fitting(client, means)
            if refusals < tiers:
                return means, tiers - refusals
            refusals -= tiers
        return client.means[-1], 1

    def _fitting(self, client: Candidate, means: Means) -> int:
        """The largest tier that fits into memory with a trainer; 0 if none does."""
        if means.free is None:
            return min(client.guess, len(self.needs))
        needs = [tier.memory[means.trainer].total(client.examples) for tier in self.needs]
        return _largest([MARGIN * needed <= means.free for needed in needs])

    def _by_time(self, client: Candidate, speed: Speed | None, pace: float | None, number: int) -> int:
        if pace is None and speed is None:
            return len(self.needs)
        count = client.examples * self.epochs(number)
        if pace is not None:
            times = [pace * tier.seconds(count, REFERENCE) for tier in self.needs]
        else:
            times = [tier.seconds(count, speed or REFERENCE) for tier in self.needs]
        return _largest([time <= DEADLINE_SHARE * self.deadline_s for time in times])

    def _between(self, ratio: float) -> TrainingNeeds:
        """The work of a sub-model with this ratio, interpolated between the nearest tiers."""
        known = sorted(zip(self.levels, self.needs, strict=True), key=lambda pair: pair[0])
        ratios = [level for level, _ in known]
        macs = float(np.interp(ratio, ratios, [tier.macs for _, tier in known]))
        return TrainingNeeds({}, macs, float(np.interp(ratio, ratios, [tier.moved for _, tier in known])))


def _largest(fitting: Sequence[bool]) -> int:
    """The largest tier that fits; 0 if none does."""
    return max((tier for tier, fits in enumerate(fitting, start=1) if fits), default=0)
