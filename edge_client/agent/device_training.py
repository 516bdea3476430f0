"""A training on this device: the data, the graphs, the checkpoints and the trainer of its task."""

from collections.abc import Callable
from dataclasses import dataclass

from edge_client.agent.task_context import TaskContext
from edge_client.data.local import LocalData
from edge_client.training.choice import make_trainer
from edge_client.training.results import EpochReport
from edge_client.training.trainer import Trained, TrainingJob
from schemas.messages import TrainTask
from schemas.messages.tasks import OWN_STEP, STEP
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups


@dataclass(frozen=True, eq=False)
class DeviceTraining:
    """Trains sub-models of one task on `data`, which has the task's shape, preprocessing and labels."""

    context: TaskContext
    channel_map: ChannelMap
    data: LocalData
    on_epoch: Callable[[EpochReport], None]
    should_stop: Callable[[], bool]

    def shared(self, task: TrainTask, received: Groups, kept: Groups) -> Trained:
        """Train the model that the device shares with the federation."""
        return self._train(task, received, kept)

    def own(self, task: TrainTask, received: Groups) -> Trained:
        """Train a model of the device's own, with checkpoints and, where it has one, a graph of its own."""
        return self._train(task, received, {}, own=True)

    def _train(self, task: TrainTask, received: Groups, kept: Groups, *, own: bool = False) -> Trained:
        context, trainer = self.context, self.context.trainer or make_trainer()
        trainer.check(task)
        checkpoints = context.checkpoints
        graphs = {name: context.store.path(ref.digest) for name, ref in task.graphs().items()}
        if own and OWN_STEP in graphs:
            graphs[STEP] = graphs[OWN_STEP]
        job = TrainingJob(
            task=task,
            plan=task.training,
            data=self.data,
            received=received,
            kept=kept,
            channel_map=self.channel_map,
            board=context.board,
            on_epoch=self.on_epoch,
            should_stop=self.should_stop,
            checkpoint=checkpoints.of(task, examples=len(self.data.train), own=own) if checkpoints else None,
            graphs=graphs,
        )
        return trainer.train(job)
