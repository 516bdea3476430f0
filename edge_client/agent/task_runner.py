"""Does a task: trains a sub-model, or exports it. Its libraries are imported with the first task."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_client.agent.device_training import DeviceTraining, Pruned
from edge_client.agent.settings import TaskContext
from edge_client.compression import chain, decoding, layered_model, uplink
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.statistics import not_finite, statistics_of
from edge_client.data.tasks.registry import learning_task
from edge_client.pruning import update_coordinates
from edge_client.training import choice, results
from edge_client.training.requests import Work, do_alone
from edge_client.training.trainer import Trained, decline_unknown
from schemas import errors, statistics, values
from schemas.errors import PeerError, format_count
from schemas.messages import DeliverTask, Delivery, Task, TrainTask, Update
from schemas.messages.tasks import FIXED
from schemas.submodel import ChannelMap
from schemas.tensors import chunks, files
from schemas.tensors.arrays import Groups

if TYPE_CHECKING:
    from edge_client.agent.delivery_export import ExportedModel, Exporter
    from edge_client.agent.rollout.delivery import Delivered
    from edge_client.inference.quantization.trial import Tried


def do_training(
    task: TrainTask,
    context: TaskContext,
    *,
    on_epoch: Callable[[results.EpochReport], None],
    should_stop: Callable[[], bool],
) -> Update:
    """Train the task's sub-model on local data; the update's blob is in the store when this returns.

    The group `model` is trained minus received, in the coordinates of the update's spec, encoded as the task
    asks. Objectives and codecs may propose private state for the next round, as does a model of the device's
    own, which is trained after that.
    """
    return do_alone(training_of(task, context, on_epoch=on_epoch, should_stop=should_stop))


def training_of(
    task: TrainTask,
    context: TaskContext,
    *,
    on_epoch: Callable[[results.EpochReport], None],
    should_stop: Callable[[], bool],
) -> Work[Update]:
    """As `do_training`; whoever does the work decides how its trainings are done."""
    if task.statistics is not None:
        return do_statistics(task, task.statistics, context)
    trainer, second = context.trainer or choice.make_trainer(), as_own_training(task)
    for each in (task, *([second] if second else [])):
        trainer.check(each)
    with open_received(task, context) as (channel_map, sent):
        data = context.data.for_training(task)
        training = DeviceTraining(context, channel_map, data, on_epoch, should_stop)
        pruned = yield from training.prune_model(task, sent)
        update = yield from _train_shared(pruned, training)
        second = as_own_training(pruned.task)
        if second is None:
            return update
        return (yield from _train_own(second, training, pruned.received, update))


def _train_shared(pruned: Pruned, training: DeviceTraining) -> Work[Update]:
    """Train the shared model, store its update, and propose what the device keeps of it."""
    task, context, channel_map = pruned.task, training.context, training.channel_map
    kept = update_coordinates.in_sub_model(_previous(task, context), task.spec, channel_map)
    received = update_coordinates.with_own(pruned.received, kept, task.own)
    trained = yield training.train_shared(task, received, kept)
    # The update is computed from the weights and the received file while it is written, to save memory.
    answer = update_coordinates.Answer(task, channel_map, {**trained.groups, **pruned.scores})
    previous = _previous(task, context)
    sending = uplink.encode_answer(answer, trained.delta, task, channel_map, previous, trained.factors)
    write = sending.chain.write
    blob = context.store.put_groups(sending.groups, chunk_bytes=context.chunk_bytes, write=write)
    if context.private is not None:
        own = update_coordinates.kept_own(received["model"], trained.delta, task.own)
        keeping = update_coordinates.in_global({**trained.kept, **own}, previous, task.spec, channel_map)
        context.private.propose(task.run, task.round, task.attempt, {**keeping, **sending.kept})
    dead = results.dead_share(trained.delta, channel_map, task.trained) if trained.metrics.epochs else 0.0
    metrics = training_metrics(task, trained, dead)
    drift = _standing(context.data.alarm, metrics)
    return Update(**answer_fields(task, context), blob=blob, spec=answer.spec, metrics=metrics, drift=drift)


def _standing(alarm: DriftAlarm | None, metrics: values.TrainingMetrics) -> values.DriftFinding | None:
    """What the alarm about the data is about, if it stands after this training."""
    if alarm is not None and metrics.epochs:
        alarm = alarm.after_training(metrics.received_loss)
    return None if alarm is None else alarm.finding


def training_metrics(task: TrainTask, trained: Trained, dead: float) -> values.TrainingMetrics:
    """What the task asks for of a training's measurements, with a large share of `dead` channels."""
    counts, metrics = trained.after.by_class, trained.metrics
    if dead >= results.MAX_DEAD:
        metrics = metrics.model_copy(update={"metrics": {**metrics.metrics, results.DEAD_CHANNELS: dead}})
    if not task.by_class or len(counts) > values.MAX_COUNTED_CLASSES:
        return metrics
    return metrics.model_copy(update={"by_class": counts, "counts": trained.after.counts})


def _train_own(task: TrainTask, training: DeviceTraining, sent: Groups, update: Update) -> Work[Update]:
    """Train the device's own model, and propose it; the update with that model's figures."""
    context = training.context
    trained, keeping = yield from train_own_model(task, training, sent, _previous(task, context))
    if context.private is not None:
        context.private.propose_more(task.run, task.round, task.attempt, keeping)
    seconds = update.metrics.seconds + trained.metrics.seconds
    own = {"own_metrics": trained.metrics.metrics, "seconds": seconds}
    return update.model_copy(update={"metrics": update.metrics.model_copy(update=own)})


def do_delivery(
    task: DeliverTask,
    context: TaskContext,
    *,
    on_epoch: Callable[[results.EpochReport], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Delivery:
    """Export the task's sub-model, measure it on held-out data, and serve it if it is good enough.

    The task may ask to train it on the device's data before. It becomes `models/model.onnx`; a device that
    serves only signed models waits for the signature.
    """
    # Imported here: a device that only trains needs no onnxruntime.
    from edge_client.agent.delivery_export import choose_exporter
    from edge_client.agent.rollout.delivery import put_delivered_in_use
    from edge_client.inference.quantization.trial import keep_best, note_of

    with open_received(task, context) as (channel_map, received):
        data = context.data.for_training(task)
        training = DeviceTraining(context, channel_map, data, on_epoch, should_stop)
        exported, personal = _export(task, training, received, choose_exporter(context))
    tried = keep_best(exported.path, context.variants, calibration=data.train, held_out=data.held_out)
    note = note_of(tried, version=f"{task.run} round {task.round}", data=data.held_out)
    delivered = put_delivered_in_use(context, note, task.trial, data.held_out)
    metrics = _delivery_metrics(exported, tried, delivered, personal, examples=len(data.held_out))
    return Delivery(**answer_fields(task, context), metrics=metrics)


def _export(
    task: DeliverTask, training: DeviceTraining, received: Groups, export: "Exporter"
) -> "tuple[ExportedModel, values.Personalisation | None]":
    """Export the received sub-model with the device's own layers, trained on its data if the task asks."""
    from edge_client.agent.delivery_export import ExportJob, with_frequencies, with_threshold
    from edge_client.agent.device_training import note_of, personalise

    context, channel_map = training.context, training.channel_map
    # The last round's own layers are those of this round, which the server has counted.
    kept = update_coordinates.in_sub_model(_previous(task, context, task.round + 1), task.spec, channel_map)
    arrays, personal = personalise(task, training, update_coordinates.with_own(received, kept, task.own))
    if personal is not None:
        note = note_of(personal, len(training.data.held_out))
        task = task.model_copy(update={"provenance": {**task.provenance, "personalisation": note}})
    job = ExportJob(task, context, channel_map, arrays, training.data, received.get(FIXED, {}))
    return with_frequencies(partial(with_threshold, export), job), personal


def _delivery_metrics(
    exported: "ExportedModel",
    tried: "Tried",
    delivered: "Delivered",
    personal: values.Personalisation | None,
    *,
    examples: int,
) -> values.DeliveryMetrics:
    """The measurements of the network as exported, and of the variant that is in use."""
    model = delivered.model
    return values.DeliveryMetrics(
        parameters=exported.parameters,
        macs=exported.macs,
        onnx_bytes=delivered.bytes,
        onnx_sha256=model.digest,
        examples=examples,
        torch_accuracy=exported.torch_accuracy,
        onnx_accuracy=tried.exported.accuracy,
        max_difference=exported.max_difference,
        latency_ms=tried.choice.kept.latency_ms if model.latency_ms is None else model.latency_ms,
        variant=model.variant,
        variant_accuracy=model.accuracy,
        metrics=model.metrics,
        why=model.why,
        verdict=delivered.verdict,
        personalisation=personal,
    )


def answer_fields(task: Task, context: TaskContext) -> dict[str, Any]:
    attempt = {"run": task.run, "round": task.round, "attempt": task.attempt}
    return {"federation": task.federation, "device": context.device, **attempt}


@contextmanager
def open_received(task: Task, context: TaskContext) -> Iterator[tuple[ChannelMap, Groups]]:
    """The channel map and the received state, readable within the block."""
    _check_names(task, context)
    channel_map = _channel_map(context.store.blob_path(task.blobs["channel-map"].digest))
    with layered_model.unpack_blobs(task, context.store) as unpacked_groups:
        groups = decoding.decode_groups(layered_model.received_groups(task, unpacked_groups, channel_map))
        if task.frozen:
            frozen = layered_model.received_groups(task, unpacked_groups, channel_map, frozen=True)
            groups = update_coordinates.with_frozen(groups, frozen.get("model", {}))
        yield channel_map, {**groups, **_read_fixed(task, context)}


def _check_names(task: Task, context: TaskContext) -> None:
    """Raise `PeerError` for a name that this device does not know; the trainer checks those of its plan."""
    context.check_model(task.model.name)
    with decline_unknown():
        learning_task(task.model.task)
        chain.make_chain(task.uplink)


def _read_fixed(task: Task, context: TaskContext) -> Groups:
    """The group of what the network's factory has drawn besides its weights; {} if the task has none."""
    ref = task.blobs.get(FIXED)
    return {} if ref is None else {FIXED: files.FileGroups(context.store.blob_path(ref.digest))[FIXED]}


@lru_cache(maxsize=2)
def _channel_map(path: Path) -> ChannelMap:
    """Cached by path: a blob is named by its digest, so its content never changes."""
    return chunks.decode_json(ChannelMap, path.read_bytes(), source="channel map")


def _previous(task: Task, context: TaskContext, number: int | None = None) -> Groups:
    """What the device kept in the last counted round before this `number`, by default the task's."""
    if context.private is None:
        return {}
    return context.private.load_groups(task.run, task.round if number is None else number)


def do_statistics(task: TrainTask, request: statistics.StatisticsRequest, context: TaskContext) -> Update:
    """Measure the training examples; the update's blob is in the store when this returns.

    Raises `PeerError` for fewer examples than the owner lets the server see the statistics of, and for values
    that have no statistics.
    """
    data = context.data.as_the_server_says(task).train
    if len(data) < context.min_examples:
        raise PeerError(
            f"{format_count(len(data), 'example')}: statistics of fewer than {context.min_examples} tell too "
            "much of each (--min-examples)",
            reason=errors.Reason.INELIGIBLE,
        )
    odd = not_finite(data)
    if odd:
        raise PeerError(f"{odd} has values that are not finite numbers", reason=errors.Reason.NOT_FINITE)
    groups: dict[str, Any] = statistics_of(data, request, outputs=task.model.num_classes)
    blob = context.store.put_groups(groups, chunk_bytes=context.chunk_bytes)
    metrics = values.TrainingMetrics(examples=len(data), epochs=0, steps=0)
    return Update(**answer_fields(task, context), blob=blob, spec=task.spec, metrics=metrics)


# The model that a device trains for itself besides the shared one, and keeps (Ditto, Li et al. 2021).


def as_own_training(task: TrainTask) -> TrainTask | None:
    """The task's second training, of the same epochs, batches and seed; None if it has none."""
    if task.own_model is None:
        return None
    plan = task.training.model_copy(update={"objectives": (task.own_model,)})
    return task.model_copy(update={"training": plan})


def train_own_model(
    task: TrainTask, training: DeviceTraining, sent: Groups, previous: Groups
) -> Work[tuple[Trained, Groups]]:
    """Train the own model v towards the received model w (Ditto, Algorithm 1, lines 6 to 8).

    v starts from what the device kept, `previous` in global coordinates, and from w where it kept nothing.
    Also returns what to keep, in global coordinates.
    """
    layers, channel_map = _layers(training.channel_map), training.channel_map
    known = {
        name: previous[name] for name in (update_coordinates.OWN, update_coordinates.HELD) if name in previous
    }
    received = {"model": sent["model"], update_coordinates.ANCHOR: sent["model"], FIXED: sent.get(FIXED, {})}
    start = update_coordinates.with_own(
        received, update_coordinates.in_sub_model(known, task.spec, channel_map), layers
    )
    trained = yield training.own(task, start)
    own = update_coordinates.kept_own(start["model"], trained.delta, layers)
    return trained, update_coordinates.in_global(own, known, task.spec, channel_map)


def _layers(channel_map: ChannelMap) -> frozenset[str]:
    return frozenset(name.rpartition(".")[0] for name in channel_map.parameters)
