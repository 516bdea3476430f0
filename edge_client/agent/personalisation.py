"""Training of a delivered sub-model on the device's own data, before its export."""

import logging
from functools import partial

from edge_client.agent.device_training import DeviceTraining
from edge_client.data.tasks.registry import learning_task
from edge_client.training.results import TrainingGivenUp
from edge_client.training.trainer import Trained
from schemas.errors import ConfigError, PeerError
from schemas.messages import TrainTask
from schemas.tensors.arrays import added
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import Personalisation

log = logging.getLogger(__name__)


def personalise(
    task: TrainTask, training: DeviceTraining, received: Groups
) -> tuple[Arrays, Personalisation]:
    """The model to export: the trained one, if its leading figure on held-out data is not worse.

    A device that cannot train keeps the received one. Arrays are in the sub-model's coordinates, made when
    read, before the next training.
    """
    arrays = received["model"]
    if why := _nothing_to_go_by(training):
        return arrays, _unchanged(why)
    try:
        trained = training.shared(task, received, {})
    except (PeerError, ConfigError, TrainingGivenUp) as error:
        return arrays, _unchanged(str(error))
    found = judged(task, trained)
    log.info("round %d: personalised: %s", task.round, found.why or "kept")
    return (added(arrays, trained.delta), found) if found.kept else (arrays, found)


def _nothing_to_go_by(training: DeviceTraining) -> str:
    data = training.data
    counts = {"to train on": len(data.train), "held out to compare with": len(data.held_out)}
    return next((f"there are no examples {what}" for what, count in counts.items() if not count), "")


def _unchanged(why: str) -> Personalisation:
    log.warning("the model is exported as received, without training on this device's data: %s", why)
    return Personalisation(kept=False, why=why[:500])


def judged(task: TrainTask, trained: Trained) -> Personalisation:
    """Whether the trained model is kept, by the task's leading figure before and after."""
    metric = learning_task(task.model.task).leading(trained.before.metrics)
    before, after = (found.metrics.get(metric.name) for found in (trained.before, trained.after))
    made = partial(
        Personalisation, epochs=trained.metrics.epochs, metric=metric.name, before=before, after=after
    )
    if before is None or after is None:
        return made(kept=False, why=f"{metric.name} is not defined on the examples that are held out")
    if metric.lost(before, after) > 0:
        return made(kept=False, why=f"{metric.name} {metric.text(after)}, {metric.text(before)} before")
    return made(kept=True)
