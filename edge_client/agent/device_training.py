"""A training on this device: the data, the graphs, the checkpoints and the trainer of its task."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from edge_client.agent.task_context import TaskContext
from edge_client.data.local import LocalData
from edge_client.pruning.channel_selection import best_spec, group_scores
from edge_client.pruning.update_coordinates import in_sub_model
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.choice import make_trainer
from edge_client.training.results import EpochReport
from edge_client.training.trainer import Trained, Trainer, TrainingJob
from schemas.messages import TrainTask
from schemas.messages.tasks import OWN_STEP, SCORING_STEP, STEP
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups


@dataclass(frozen=True, eq=False)
class Pruned:
    """A task in the coordinates of what the device trains, with what it received of that, and its scores."""

    task: TrainTask
    received: Groups
    scores: Groups = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DeviceTraining:
    """Trains sub-models of one task on `data`, which has the task's shape, preprocessing and labels."""

    context: TaskContext
    channel_map: ChannelMap
    data: LocalData
    on_epoch: Callable[[EpochReport], None]
    should_stop: Callable[[], bool]

    def prune_model(self, task: TrainTask, received: Groups) -> Pruned:
        """What the device trains of the received model, pruned by its own scores if the task says so."""
        personal = task.personal
        if personal is None or personal.scored_by is None:
            return Pruned(task, received)
        plan = task.training.model_copy(update={"objectives": (personal.scored_by,), "local_epochs": 0})
        scoring = task.model_copy(update={"training": plan})
        scores = self._trainer(scoring).score(self._job(scoring, received, {}, step=SCORING_STEP))
        ranked = group_scores(scores.get("attention", {}), self.channel_map)
        spec = best_spec(ranked, personal.ratios, self.channel_map)
        own = task.model_copy(update={"spec": spec, "personal": None})
        return Pruned(own, in_sub_model(received, spec, self.channel_map), scores)

    def train_shared(self, task: TrainTask, received: Groups, kept: Groups) -> Trained:
        """Train the model that the device shares with the federation."""
        return self._train(task, received, kept)

    def own(self, task: TrainTask, received: Groups) -> Trained:
        """Train a model of the device's own, with checkpoints and, where it has one, a graph of its own."""
        return self._train(task, received, {}, own=True)

    def outputs(self, task: TrainTask, received: Groups, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The received model's outputs [N, L] for inputs [N, ...]."""
        return self._trainer(task).outputs(self._job(task, received, {}, step=STEP), inputs)

    def _train(self, task: TrainTask, received: Groups, kept: Groups, *, own: bool = False) -> Trained:
        checkpoints = self.context.checkpoints
        checkpoint = checkpoints.of(task, examples=len(self.data.train), own=own) if checkpoints else None
        step = OWN_STEP if own else STEP
        return self._trainer(task).train(self._job(task, received, kept, step=step, checkpoint=checkpoint))

    def _trainer(self, task: TrainTask) -> Trainer:
        trainer = self.context.trainer or make_trainer()
        trainer.check(task)
        return trainer

    def _job(
        self,
        task: TrainTask,
        received: Groups,
        kept: Groups,
        *,
        step: str,
        checkpoint: EpochCheckpoint | None = None,
    ) -> TrainingJob:
        """A job with the graph `step` as its step graph, where the task has one of that name."""
        graphs = {name: self.context.store.blob_path(ref.digest) for name, ref in task.graphs().items()}
        if step in graphs:
            graphs[STEP] = graphs[step]
        return TrainingJob(
            task=task,
            plan=task.training,
            data=self.data,
            received=received,
            kept=kept,
            channel_map=self.channel_map,
            board=self.context.board,
            on_epoch=self.on_epoch,
            should_stop=self.should_stop,
            checkpoint=checkpoint,
            graphs=graphs,
        )
