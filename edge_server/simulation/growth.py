"""Data that grows in virtual time: how much of it a device has, has trained on and has tested for drift.

A device's examples are in the order of their arrival, so numbers of examples are all that is to be known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import Labels
from edge_client.data.drift import DriftTest, ExampleRecord
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.local import LocalData
from edge_client.data.partition import Indices
from schemas.messages import Update
from schemas.values import DataCard

Times = NDArray[np.float64]
HELD_MARKS = 10**12  # Marks of held-out examples begin here, those of training examples at 0


class Counts(NamedTuple):
    """Numbers of training and of held-out examples."""

    train: int = 0
    held_out: int = 0


NONE = Counts()


@dataclass(frozen=True)
class Growth:
    """What a device knows of its data: how many examples are `there`, were there at the last training, and
    have been compared by a drift test; and the alarm about them, if one stands.
    """

    there: Counts = NONE
    known: Counts = NONE
    tested: Counts = NONE
    alarm: DriftAlarm | None = None

    @property
    def new(self) -> int:
        """Training examples since the last training."""
        return self.there.train - self.known.train

    def after_training(self, used: Counts, received_loss: float | None) -> "Growth":
        """The growth once the device has trained a model of this loss on the first `used` examples."""
        alarm = self.alarm and self.alarm.after_training(received_loss)
        tested = Counts(*np.maximum(self.tested, used).tolist())
        return replace(self, known=used, tested=tested, alarm=alarm)

    def grown(self, there: Counts, data: Callable[[Counts], LocalData], test: DriftTest) -> "Growth":
        """The growth with these examples `there`, which `test` compares with the known ones."""
        after = replace(self, there=there)
        found = test(data(there), after._record())
        if found is None:
            return after
        alarm = self.alarm if found.finding is None else DriftAlarm(found.finding)
        return replace(after, tested=there, alarm=alarm)

    def _record(self) -> ExampleRecord:
        """The growth as a device's own record, with places for marks."""
        first = (0, HELD_MARKS)
        there, known, tested = (
            [np.arange(begin, begin + count) for begin, count in zip(first, counts, strict=True)]
            for counts in (self.there, self.known, self.tested)
        )
        return ExampleRecord(
            held=there[1], train=there[0], known=np.concatenate(known), tested=np.concatenate(tested)
        )


def arrival_times(labels: Labels, indices: Indices, arrives_s: Mapping[int, float]) -> Times:
    return np.array([arrives_s.get(int(label), 0.0) for label in labels[indices]])


def in_order(indices: Indices, times: Times) -> tuple[Indices, Times]:
    order = np.argsort(times, kind="stable")
    return indices[order], times[order]


def counts_at(arrivals: Sequence[Times], t: float) -> Counts:
    """How many training and held-out examples have come by `t` seconds."""
    return Counts(*(int(np.searchsorted(times, t, side="right")) for times in arrivals))


def next_arrival(arrivals: Sequence[Times], there: Counts) -> float:
    """When the first examples come that are not `there` yet; infinity if all are."""
    later = (times[count:] for times, count in zip(arrivals, there, strict=True))
    return min((float(times[0]) for times in later if len(times)), default=float("inf"))


class GrowingData:
    """Data whose training and held-out examples come at the times `arrivals`.

    `card` describes all of it, `read` returns the first examples of both parts, `test` looks for a drift.
    """

    def __init__(
        self, arrivals: Sequence[Times], card: DataCard, read: Callable[[Counts], LocalData], test: DriftTest
    ) -> None:
        self._arrivals, self._card, self._read, self._test = arrivals, card, read, test
        self.growth = Growth(there=counts_at(arrivals, 0.0))
        self._used = self.growth.there

    @property
    def card(self) -> DataCard:
        alarm = self.growth.alarm
        said = {
            "examples": self.growth.there.train,
            "new": self.growth.new,
            "drift": None if alarm is None else alarm.finding,
        }
        return self._card.model_copy(update=said)

    def next_arrival(self) -> float:
        return next_arrival(self._arrivals, self.growth.there)

    def take(self, now: float) -> None:
        """Count the examples that have come by `now`, and look for a drift."""
        self.growth = self.growth.grown(counts_at(self._arrivals, now), self._read, self._test)

    def begin_job(self) -> tuple[Counts, DriftAlarm | None]:
        """The examples that a job is done with, and the alarm about them."""
        self._used = self.growth.there
        return self._used, self.growth.alarm

    def note_training(self, update: Update) -> bool:
        """Note that the server has accepted the last job's update; returns whether the card may differ."""
        before = self.growth
        if update.metrics.epochs:
            self.growth = before.after_training(self._used, update.metrics.received_loss)
        return self.growth is not before and bool(before.new or before.alarm)
