"""Local work on a received sub-model: `OwnTraining`, or a Flower app (`edge_client.training.flower`).

Both change the module's weights in place. Imports torch: import it late.
"""

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
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups

EVALUATION_BATCH = 64
"""Larger batches would need more memory than training, and save no time."""


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """A training task with its inputs: the module with the received weights, data, and kept groups.

    `channel_map` is the full network's. `board` is the directory above `/proc` and `/sys`, which give the
    free memory.
    """

    task: TrainTask
    plan: TrainingPlan
    module: nn.Module
    data: LocalData
    received: Groups
    kept: Groups
    channel_map: ChannelMap
    board: Path
    on_epoch: Callable[[EpochReport], None]
    should_stop: Callable[[], bool]
    checkpoint: EpochCheckpoint | None = None
    recorder: Recorder | None = None

    @cached_property
    def micro_batch(self) -> int | None:
        """Number of examples per forward pass that fits into memory before training; None for all."""
        shape, count = self.task.model.input_shape, len(self.data.train)
        fit = partial(micro_batch, self.module, shape, self.plan, examples=count)
        with suppress(PeerError):
            if fit(memory=memory(self.board)) is None:
                return None
        # This process may still hold memory of its last task.
        give_back()
        return fit(memory=memory(self.board))


class LocalWork(Protocol):
    """Trains tasks; its methods are never called from two threads at once."""

    def check(self, task: TrainTask) -> None:
        """Raise `PeerError` for a task that this work cannot do."""

    def train(self, job: TrainingJob) -> TrainingResult:
        """Train `job.module` in place."""

    def evaluate(self, job: TrainingJob) -> Evaluation:
        """Loss and accuracy of `job.module` on data that is never trained on."""


class OwnTraining:
    """This package's training loop."""

    def check(self, task: TrainTask) -> None:
        """Every task is possible."""

    def train(self, job: TrainingJob) -> TrainingResult:
        """Train with `train`, in parts of batches if memory is short."""
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
            micro_batch=job.micro_batch,
            spec=job.task.spec,
            channel_map=job.channel_map,
        )

    def evaluate(self, job: TrainingJob) -> Evaluation:
        """Evaluate on the device's held-out examples."""
        batch_size = min(EVALUATION_BATCH, job.micro_batch or EVALUATION_BATCH)
        return evaluate(job.module, job.data.held_out, batch_size=batch_size)


OWN_TRAINING: LocalWork = OwnTraining()
