"""The model that a device trains for itself besides the shared one, and keeps (Ditto, Li et al. 2021)."""

from edge_client.agent.device_training import DeviceTraining
from edge_client.pruning.own_layers import ANCHOR, HELD, OWN, kept_own, with_own
from edge_client.pruning.update_coordinates import in_global, in_sub_model
from edge_client.training.trainer import Trained
from schemas.messages import TrainTask
from schemas.messages.tasks import FIXED
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups


def as_own_training(task: TrainTask) -> TrainTask | None:
    """The task's second training, of the same epochs, batches and seed; None if it has none."""
    if task.own_model is None:
        return None
    plan = task.training.model_copy(update={"objectives": (task.own_model,)})
    return task.model_copy(update={"training": plan})


def train_own_model(
    task: TrainTask, training: DeviceTraining, sent: Groups, previous: Groups
) -> tuple[Trained, Groups]:
    """Train the own model v towards the received model w (Ditto, Algorithm 1, lines 6 to 8).

    v starts from what the device kept, `previous` in global coordinates, and from w where it kept nothing.
    Also returns what to keep, in global coordinates.
    """
    layers, channel_map = _layers(training.channel_map), training.channel_map
    known = {name: previous[name] for name in (OWN, HELD) if name in previous}
    received = {"model": sent["model"], ANCHOR: sent["model"], FIXED: sent.get(FIXED, {})}
    start = with_own(received, in_sub_model(known, task.spec, channel_map), layers)
    trained = training.own(task, start)
    own = kept_own(start["model"], trained.delta, layers)
    return trained, in_global(own, known, task.spec, channel_map)


def _layers(channel_map: ChannelMap) -> frozenset[str]:
    return frozenset(name.rpartition(".")[0] for name in channel_map.parameters)
