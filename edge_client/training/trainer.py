"""Local work: what a device does with the sub-model that it was sent. Imports torch: import it late.

`OwnTraining` is this package's; a Flower app may take its place (`edge_client.training.flower`). Either
changes the module's weights in place; `edge_client.agent.task_runner` sends both results alike.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Protocol

from torch import nn

from edge_client.data.local import LocalData
from edge_client.system.hardware.memory import memory
from edge_client.system.process_memory import give_back
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.evaluation import Evaluation, evaluate
from edge_client.training.loop import EpochReport, TrainingResult, train
from edge_client.training.micro_batches import micro_batch
from edge_client.training.step_capture import Recorder
from schemas.errors import PeerError
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.tensors.blobs import Groups

EVALUATION_BATCH = 64
"""Large batches of held-out examples would need more memory than training, and save no time."""


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """A training task and all that it takes: the module with the received weights, data, what was kept.

    Below `board` lie the files that say what memory there is.
    """

    task: TrainTask
    plan: TrainingPlan
    module: nn.Module
    data: LocalData
    received: Groups
    kept: Groups
    board: Path
    on_epoch: Callable[[EpochReport], None]
    should_stop: Callable[[], bool]
    checkpoint: EpochCheckpoint | None = None
    recorder: Recorder | None = None

    @cached_property
    def at_once(self) -> int | None:
        """How many examples of a batch fit into memory, asked once and before the training takes its own."""
        shape, count = self.task.model.input_shape, len(self.data.train)
        look = partial(micro_batch, self.module, shape, self.plan, examples=count)
        with suppress(PeerError):
            if look(memory=memory(self.board)) is None:
                return None
        # Of what seems to be taken this process may have kept some since its last task.
        give_back()
        return look(memory=memory(self.board))


class LocalWork(Protocol):
    """What trains a task. Its methods are never called from two threads at once."""

    def check(self, task: TrainTask) -> None:
        """Raise `PeerError` for a task that asks what this work cannot do."""

    def train(self, job: TrainingJob) -> TrainingResult:
        """Train `job.module` in place."""

    def evaluate(self, job: TrainingJob) -> Evaluation:
        """Loss and accuracy of `job.module` as it is, on data that is never trained on."""


class OwnTraining:
    """This package's training loop, on the device's own data."""

    def check(self, task: TrainTask) -> None:
        """It can do whatever a task asks."""

    def train(self, job: TrainingJob) -> TrainingResult:
        """In parts of batches where memory is short."""
        return train(
            job.module,
            job.data.train,
            job.plan,
            received=job.received,
            kept=job.kept,
            on_epoch=job.on_epoch,
            should_stop=job.should_stop,
            checkpoint=job.checkpoint,
            recorder=job.recorder,
            micro_batch=job.at_once,
        )

    def evaluate(self, job: TrainingJob) -> Evaluation:
        """On the device's held-out examples."""
        at_once = min(EVALUATION_BATCH, job.at_once or EVALUATION_BATCH)
        return evaluate(job.module, job.data.held_out, batch_size=at_once)


OWN: LocalWork = OwnTraining()
