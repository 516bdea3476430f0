"""Does a task: trains a sub-model, or exports it. Imports torch: import this module late."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from edge_client.agent.task_context import TaskContext
from edge_client.compression.decoding import decoded
from edge_client.compression.layered_model import received_groups
from edge_client.compression.unpacking import unpacked
from edge_client.compression.uplink import encode_answer
from edge_client.inference import installed_model
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.pruning.surgery import count_macs, parameter_count, trained_since
from edge_client.pruning.update_coordinates import Answer, in_global, in_sub_model
from edge_client.training.evaluation import evaluate
from edge_client.training.loop import EpochReport, bounded
from edge_client.training.step_capture import Recorder
from edge_client.training.trainer import OWN_TRAINING, TrainingJob
from schemas.messages import DeliverTask, Delivery, Task, TrainTask, Update
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import Groups, decode_json
from schemas.values import DeliveryMetrics


def do_training(
    task: TrainTask,
    context: TaskContext,
    *,
    on_epoch: Callable[[EpochReport], None],
    should_stop: Callable[[], bool],
    sub_models: SubModelCache | None = None,
    recorder: Recorder | None = None,
) -> Update:
    """Train the task's sub-model on local data; the update's blob is in the store when this returns.

    The group `model` is trained minus received, in the coordinates of the update's spec, encoded as the task
    asks. Objectives and codecs may propose private state for the next round. `sub_models` caches networks, a
    `recorder` captures training steps so that repeating them costs little more than their kernels.
    """
    with _received(task, context) as (channel_map, received):
        work, data = context.work or OWN_TRAINING, context.data.as_the_server_says(task)
        work.check(task)
        module = (sub_models or SubModelCache()).get(task.model, task.spec, channel_map, received["model"])
        job = TrainingJob(
            task,
            task.training,
            module,
            data,
            received=received,
            kept=in_sub_model(_previous(task, context), task.spec, channel_map),
            channel_map=channel_map,
            board=context.board,
            on_epoch=on_epoch,
            should_stop=should_stop,
            checkpoint=context.checkpoints.of(task, examples=len(data.train))
            if context.checkpoints
            else None,
            recorder=recorder,
        )
        before = work.evaluate(job)
        result = work.train(job)
        # The update is computed from the module and the received file while it is written, to save memory.
        module.zero_grad(set_to_none=True)
        delta = trained_since(module, received["model"])
        answer = Answer(task, channel_map, result.groups)
        previous = _previous(task, context)
        sending = encode_answer(answer, delta, task, channel_map, previous)
        write = sending.chain.write
        blob = context.store.put_groups(sending.groups, chunk_bytes=context.chunk_bytes, write=write)
        if context.private is not None:
            keeping = in_global(result.kept, previous, task.spec, channel_map)
            context.private.propose(task.run, task.round, task.attempt, {**keeping, **sending.kept})
        after = work.evaluate(job)
    losses = {"received_loss": bounded(before.loss), "accuracy": after.accuracy}
    metrics = result.metrics.model_copy(update=losses)
    return Update(**_identity(task, context), blob=blob, spec=answer.spec, metrics=metrics)


def do_delivery(task: DeliverTask, context: TaskContext) -> Delivery:
    """Export the task's sub-model, measure it on held-out data, and serve it if it is good enough.

    It becomes `models/model.onnx`; a device that serves only signed models waits for the signature.
    """
    # Imported here: a device that only trains needs neither onnx nor its runtime.
    from edge_client.agent.rollout.delivery import put_delivered_in_use
    from edge_client.inference.export.onnx import export_onnx
    from edge_client.inference.quantization.trial import keep_best, note_of

    with _received(task, context) as (channel_map, received):
        data = context.data.as_the_server_says(task)
        module = SubModelCache().get(task.model, task.spec, channel_map, received["model"]).eval()
    report = export_onnx(
        module,
        installed_model.begin(context.models),
        input_shape=task.model.input_shape,
        preprocessing=task.preprocessing,
        provenance=task.provenance,
        sample=data.held_out.images[:8] if len(data.held_out) else None,
        graphs=_given_graph(task, context),
    )
    tried = keep_best(report.path, context.variants, calibration=data.train, held_out=data.held_out)
    note = note_of(tried, version=f"{task.run} round {task.round}", data=data.held_out)
    torch_accuracy = evaluate(module, data.held_out).accuracy
    delivered = put_delivered_in_use(context, note, task.trial)
    model = delivered.model
    metrics = DeliveryMetrics(
        parameters=parameter_count(module),
        macs=count_macs(module, task.model.input_shape),
        onnx_bytes=delivered.bytes,
        onnx_sha256=model.digest,
        examples=len(data.held_out),
        torch_accuracy=torch_accuracy,
        onnx_accuracy=tried.exported.accuracy,
        max_difference=report.max_difference,
        latency_ms=tried.choice.kept.latency_ms if model.latency_ms is None else model.latency_ms,
        variant=model.variant,
        variant_accuracy=model.accuracy,
        why=model.why,
        verdict=delivered.verdict,
    )
    return Delivery(**_identity(task, context), metrics=metrics)


def _identity(task: Task, context: TaskContext) -> dict[str, Any]:
    attempt = {"run": task.run, "round": task.round, "attempt": task.attempt}
    return {"federation": task.federation, "device": context.device, **attempt}


def _given_graph(task: DeliverTask, context: TaskContext) -> Iterator[bytes]:
    """The exported graph without weights, if the task includes it."""
    ref = task.blobs.get("graph")
    if ref is not None:
        yield context.store.path(ref.digest).read_bytes()


@contextmanager
def _received(task: Task, context: TaskContext) -> Iterator[tuple[ChannelMap, Groups]]:
    """The channel map and the received state, readable within the block."""
    context.check_model(task.model.name)
    channel_map = _channel_map(context.store.path(task.blobs["channel-map"].digest))
    with unpacked(task, context.store) as unpacked_groups:
        yield channel_map, decoded(received_groups(task, unpacked_groups, channel_map))


@lru_cache(maxsize=2)
def _channel_map(path: Path) -> ChannelMap:
    """Cached by path: a blob is named by its digest, so its content never changes."""
    return decode_json(ChannelMap, path.read_bytes(), source="channel map")


def _previous(task: Task, context: TaskContext) -> Groups:
    return context.private.load(task.run, task.round) if context.private is not None else {}
