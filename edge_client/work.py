"""What a task asks of a device: train a sub-model, or export it for good. Imports torch: import it late."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from edge_client.bench import bench_model
from edge_client.evaluation import evaluate
from edge_client.export import export_onnx
from edge_client.inference import load_model
from edge_client.models.build import build_model
from edge_client.pruning import group_scores, personal_spec, prefix_spec
from edge_client.slicing import extract
from edge_client.surgery import arrays_of, compact, count_macs, load_arrays, parameter_count
from edge_client.training import EpochReport, train
from edge_client.workplace import Workplace
from schemas.blobs import Array, Groups, encode_groups, read_groups
from schemas.messages import Delivery, Task, Update
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.values import DeliveryMetrics

BENCH_SECONDS = 0.4


def do_training(
    task: Task,
    place: Workplace,
    *,
    on_epoch: Callable[[EpochReport], None],
    should_stop: Callable[[], bool],
) -> Update:
    """Train the task's sub-model on local data; the update's blob is in the store when this returns.

    The group `model` is trained minus received, in the coordinates of the update's spec.
    """
    assert task.training is not None
    channel_map, received = _received(task, place)
    data = place.data.as_the_server_says(task)
    module = _sub_model(task, channel_map, received)
    result = train(
        module, data.train, task.training, received=received, on_epoch=on_epoch, should_stop=should_stop
    )
    trained = arrays_of(module)
    delta = {name: trained[name] - received["model"][name] for name in trained}
    spec, delta = _personal(task, result.groups, delta, channel_map)
    blob = place.store.put(encode_groups({**result.groups, "model": delta}), chunk_bytes=place.chunk_bytes)
    accuracy = evaluate(module, data.held_out).accuracy
    return Update(
        federation=task.federation,
        device=place.device,
        run=task.run,
        round=task.round,
        attempt=task.attempt,
        blob=blob,
        spec=spec,
        metrics=result.metrics.model_copy(update={"accuracy": accuracy}),
    )


def do_delivery(task: Task, place: Workplace) -> Delivery:
    """Export the task's sub-model to `models/model.onnx` and measure it on the device's held-out data."""
    channel_map, received = _received(task, place)
    data = place.data.as_the_server_says(task)
    module = _sub_model(task, channel_map, received).eval()
    place.models.mkdir(parents=True, exist_ok=True)
    report = export_onnx(
        module,
        place.models / "model.onnx",
        input_shape=task.model.input_shape,
        preprocessing=task.preprocessing,
        provenance=task.provenance,
        sample=data.held_out.images[:8] if len(data.held_out) else None,
    )
    served = load_model(report.path, threads=1)
    metrics = DeliveryMetrics(
        parameters=parameter_count(module),
        macs=count_macs(module, task.model.input_shape),
        onnx_bytes=report.bytes,
        onnx_sha256=report.sha256,
        examples=len(data.held_out),
        torch_accuracy=evaluate(module, data.held_out).accuracy,
        onnx_accuracy=served.accuracy(data.held_out.images, data.held_out.labels),
        max_difference=report.max_difference,
        latency_ms=bench_model(served, threads=1, seconds=BENCH_SECONDS).median_ms,
    )
    return Delivery(
        federation=task.federation,
        device=place.device,
        run=task.run,
        round=task.round,
        attempt=task.attempt,
        metrics=metrics,
    )


def _received(task: Task, place: Workplace) -> tuple[ChannelMap, Groups]:
    place.check_model(task.model.name)
    path = place.store.path(task.blobs["channel-map"].digest)
    channel_map = ChannelMap.model_validate_json(path.read_bytes())
    return channel_map, read_groups(place.store.path(task.blobs["state"].digest))


def _sub_model(task: Task, channel_map: ChannelMap, received: Groups) -> nn.Module:
    module = compact(build_model(task.model), task.spec, channel_map)
    load_arrays(module, received["model"])
    return module


def _personal(
    task: Task, groups: Groups, delta: dict[str, Array], channel_map: ChannelMap
) -> tuple[SubModelSpec, dict[str, Array]]:
    """Cut the update to the channels that this device attends to most, if the task asks for that.

    Without a single example there are no scores; the leading channels then stand for the unknown best.
    """
    if task.personal is None:
        return task.spec, delta
    scores, ratios = groups.get("attention"), task.personal.ratios
    if scores:
        spec = personal_spec(group_scores(scores, channel_map), ratios, channel_map)
    else:
        spec = prefix_spec(ratios, channel_map)
    return spec, extract(delta, spec, channel_map)
