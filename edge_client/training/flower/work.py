"""A Flower `ClientApp` as local work: the sub-model goes in as arrays, what comes back is the update.

Nothing of Flower's own network, processes or telemetry takes part: the app is called, as Flower's SuperNode
calls it, in the thread that trains.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from edge_client.training.evaluation import Evaluation
from edge_client.training.flower.app import load_app
from edge_client.training.flower.settings import FlowerSettings
from edge_client.training.loop import EpochReport, TrainingResult, TrainingStopped, bounded
from edge_client.training.trainer import OWN, TrainingJob
from schemas.errors import PeerError
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import Reason, TrainingMetrics


class FlowerWork:
    """Trains by asking an app; raises `ConfigError` at once if there is no such app."""

    def __init__(self, settings: FlowerSettings, device: str) -> None:
        self._settings, self._device = settings, device
        self._loaded = load_app(settings.app)
        self._state: tuple[str, Any] = ("", None)

    def check(self, task: TrainTask) -> None:
        """An app trains as it does: what an algorithm changes within training is not for it."""
        plan = task.training
        asked = [f"the objective '{piece.name}'" for piece in plan.objectives]
        asked += ["channels chosen by this device's attention"] if task.personal is not None else []
        asked += ["a round without epochs"] if plan.local_epochs == 0 else []
        if asked:
            raise PeerError(
                f"a Flower app trains here, which knows nothing of {' or '.join(asked)}",
                reason=Reason.INCOMPATIBLE,
            )

    def train(self, job: TrainingJob) -> TrainingResult:
        """Ask the app to train; raises `FlowerError` for an answer that is no update of this model."""
        if job.should_stop():
            raise TrainingStopped("local training was stopped")
        start = time.perf_counter()
        answer = self._asked("train", job)
        examples = answer.examples
        if not answer.arrays:
            from edge_client.training.flower.messages import FlowerError

            raise FlowerError("the app's reply to train has no arrays: send the trained state dict back")
        job.module.load_state_dict({name: torch.from_numpy(array) for name, array in answer.arrays.items()})
        # The app cannot be stopped within its training; what it did for a task that has ended is dropped.
        if job.should_stop():
            raise TrainingStopped("local training was stopped")
        loss, epochs = bounded(answer.loss("train")), job.plan.local_epochs
        job.on_epoch(EpochReport(epochs, epochs, loss))
        steps = epochs * -(-examples // job.plan.batch_size)
        seconds = time.perf_counter() - start
        metrics = TrainingMetrics(
            examples=examples, epochs=epochs, steps=steps, train_loss=loss, seconds=seconds
        )
        return TrainingResult({}, metrics)

    def evaluate(self, job: TrainingJob) -> Evaluation:
        """Ask the app, on its own data; one that cannot evaluate leaves it to this device's held-out data."""
        if not self._loaded.has("evaluate"):
            return OWN.evaluate(job)
        answer = self._asked("evaluate", job)
        return Evaluation(bounded(answer.loss("evaluate")), answer.accuracy, answer.examples)

    def _asked(self, action: str, job: TrainingJob) -> Any:
        from edge_client.training.flower import legacy, messages

        state = {name: tensor.detach().cpu().numpy() for name, tensor in job.module.state_dict().items()}
        config = asked_config(job.task.round, job.plan)
        names = {"run": job.task.run, "node": self._device}
        context = self._context(job.task.run, config)
        # An app that draws from torch's generator draws the same again when its task is done again.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(job.plan.seed)
            if self._loaded.is_legacy:
                message = legacy.legacy_question(action, state, config, **names)
                return legacy.legacy_answer(action, self._loaded.app(message, context), state)
            message = messages.question(action, state, config, **names)
            return messages.answer_of(self._loaded.app(message, context), state)

    def _context(self, run: str, config: Mapping[str, Any]) -> Any:
        """What the app knows of its run and its node; its `state` lasts as long as the run, in memory."""
        from flwr.app import Context, RecordDict

        from edge_client.training.flower.messages import number_of

        if self._state[0] != run:
            self._state = (run, RecordDict())
        run_config = {**self._loaded.run_config, **config, **self._settings.run_config}
        return Context(
            run_id=number_of(run),
            node_id=number_of(self._device),
            node_config=dict(self._settings.node_config),
            state=self._state[1],
            run_config=run_config,
        )


def asked_config(round_number: int, plan: TrainingPlan) -> dict[str, Any]:
    """The federation's plan under the names that Flower's templates use, `lr` and `learning-rate` alike."""
    return {
        "server-round": round_number,
        "local-epochs": plan.local_epochs,
        "batch-size": plan.batch_size,
        "lr": plan.learning_rate,
        "learning-rate": plan.learning_rate,
        "momentum": plan.momentum,
        "weight-decay": plan.weight_decay,
        "seed": plan.seed,
    }
