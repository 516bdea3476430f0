"""The finished epochs of a training, those before a restart included."""

import time
from collections.abc import Mapping
from typing import Any

from edge_client.training.results import EpochReport
from edge_client.training.sharp_epochs import passes
from schemas.strategy import TrainingPlan
from schemas.values import TrainingMetrics


class EpochProgress:
    """The loss of each epoch, the number of steps, and the seconds since the training began."""

    def __init__(self) -> None:
        self.losses: list[float | None] = []
        self.steps = 0
        self._began = time.perf_counter()

    @property
    def done(self) -> int:
        """Number of finished epochs."""
        return len(self.losses)

    def figures(self) -> dict[str, Any]:
        """The part of a checkpoint that `resume` takes."""
        return {"losses": self.losses, "steps": self.steps, "seconds": time.perf_counter() - self._began}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Add the epochs of a checkpoint; raises `LookupError` or `TypeError` for anything else."""
        losses, steps, began = list(saved["losses"]), saved["steps"], self._began - saved["seconds"]
        self.losses, self.steps, self._began = losses, steps, began

    def add(self, loss: float | None, steps: int, *, epochs: int) -> None:
        """Count what took the work of so many epochs with this loss, and of so many steps in each."""
        self.losses.extend([loss] * epochs)
        self.steps += steps * epochs

    def report(self, plan: TrainingPlan) -> EpochReport:
        """The last pass over the data, of those of the plan."""
        return EpochReport(passes(plan, self.done), passes(plan, plan.local_epochs), self.losses[-1])

    def metrics(self, examples: int) -> TrainingMetrics:
        """The measurements of the whole training."""
        return TrainingMetrics(
            examples=examples,
            epochs=self.done,
            steps=self.steps,
            train_loss=self.losses[-1] if self.losses else None,
            seconds=time.perf_counter() - self._began,
        )
