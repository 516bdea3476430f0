"""An alarm about drifted data, which stands while training on the data still lowers the model's loss."""

from dataclasses import dataclass, replace

from schemas.values import DriftFinding

MIN_GAIN = 0.02  # share of the alarm's first loss by which a training that helps lowers it
PATIENCE = 2  # trainings in a row that do not help, after which the alarm ends


@dataclass(frozen=True)
class DriftAlarm:
    """A drift test's finding, and what the trainings since have gained.

    `first` and `lowest` are losses of received models on held-out examples; `vain` trainings in a row have
    not helped.
    """

    finding: DriftFinding
    first: float | None = None
    lowest: float | None = None
    vain: int = 0

    def after_training(self, received_loss: float | None) -> "DriftAlarm | None":
        """The alarm after a training on the drifted data; None if it has ended.

        `received_loss` is that of the model before this training. Without a loss the alarm ends at once.
        """
        if received_loss is None:
            return None
        if self.first is None or self.lowest is None:
            return replace(self, first=received_loss, lowest=received_loss)
        if received_loss < self.lowest - MIN_GAIN * self.first:
            return replace(self, lowest=received_loss, vain=0)
        return None if self.vain + 1 >= PATIENCE else replace(self, vain=self.vain + 1)
