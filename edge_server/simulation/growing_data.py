"""A virtual device's data that grows: the examples that have come, and what the device says of them."""

from collections.abc import Callable, Sequence

from edge_client.data.drift import DriftTest
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.local import LocalData
from edge_server.simulation.growth import Counts, Growth, Times, counts_at, next_arrival
from schemas.messages import Update
from schemas.values import DataCard


class GrowingData:
    """Data whose training and held-out examples come at the times `arrivals`.

    `card` describes all of it, `read` returns the first examples of both parts, `test` looks for a drift.
    """

    def __init__(
        self,
        arrivals: Sequence[Times],
        card: DataCard,
        read: Callable[[Counts], LocalData],
        test: DriftTest,
    ) -> None:
        self._arrivals, self._card, self._read, self._test = arrivals, card, read, test
        self.growth = Growth(there=counts_at(arrivals, 0.0))
        self._used = self.growth.there

    @property
    def card(self) -> DataCard:
        """What the device says of its data."""
        alarm = self.growth.alarm
        said = {
            "examples": self.growth.there.train,
            "new": self.growth.new,
            "drift": None if alarm is None else alarm.finding,
        }
        return self._card.model_copy(update=said)

    def next_arrival(self) -> float:
        """When the next examples come; infinity if none will."""
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
