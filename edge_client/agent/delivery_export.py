"""Exports a delivered sub-model: with torch where that trains, else by filling the task's graph."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from edge_client.agent.settings import TaskContext
from edge_client.data.dataset import Inputs, Pixels
from edge_client.data.local import LocalData
from edge_client.inference import installed_model
from edge_client.system.libraries import is_installed
from schemas import errors, messages, submodel
from schemas.messages.tasks import GRAPH
from schemas.tensors.arrays import Arrays, kind_of

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExportJob:
    """A delivery's inputs: the arrays of the task's sub-model, in its own coordinates, and the data.

    `fixed` is what the network's factory has drawn besides its weights.
    """

    task: messages.DeliverTask
    context: TaskContext
    channel_map: submodel.ChannelMap
    arrays: Arrays
    data: LocalData
    fixed: Arrays


@dataclass(frozen=True)
class ExportedModel:
    """The written file and its network; without torch nothing is compared, which is None."""

    path: Path
    parameters: int
    macs: int
    torch_accuracy: float | None = None
    max_difference: float | None = None


Exporter = Callable[[ExportJob], ExportedModel]


def choose_exporter(context: TaskContext) -> Exporter:
    """Torch's export where torch trains and the onnx package is there."""
    trains = context.trainer is None or context.trainer.name == "torch"
    return export_with_torch if trains and all(map(is_installed, ("torch", "onnx"))) else export_with_graph


def export_with_torch(job: ExportJob) -> ExportedModel:
    """Export the sub-model as a torch module and compare the file with it; raises `ExportRefused`."""
    # Imported here: a device that only trains needs no onnx, and one without torch comes never here.
    from edge_client.inference.export.onnx import export_onnx
    from edge_client.pruning.submodel_cache import SubModelCache
    from edge_client.pruning.surgery import count_macs, parameter_count
    from edge_client.training.evaluation import evaluate

    task, held_out = job.task, job.data.held_out
    module = SubModelCache().get(task.model, task.spec, job.channel_map, job.arrays, job.fixed).eval()
    graph = _given_graph(job)
    report = export_onnx(
        module,
        installed_model.begin(job.context.models),
        input_shape=task.model.input_shape,
        preprocessing=task.preprocessing,
        provenance=task.provenance,
        sample=held_out.images[:8] if len(held_out) else None,
        graphs=() if graph is None else [graph],
        task=task.model.task,
    )
    return ExportedModel(
        report.path,
        parameters=parameter_count(module),
        macs=count_macs(module, task.model.input_shape),
        torch_accuracy=evaluate(module, held_out).accuracy,
        max_difference=report.max_difference,
    )


def export_with_graph(job: ExportJob) -> ExportedModel:
    """Fill the task's graph with the sub-model's arrays.

    Raises `ExportRefused`, and `PeerError` for a task without a graph.
    """
    from edge_client.inference.export.filled import export_filled

    task, held_out = job.task, job.data.held_out
    graph = _given_graph(job)
    if graph is None:
        raise errors.PeerError(
            "this device exports without torch: the task has no graph", reason=errors.Reason.INCOMPATIBLE
        )
    report = export_filled(
        graph,
        job.arrays,
        installed_model.begin(job.context.models),
        model=task.model,
        preprocessing=task.preprocessing,
        provenance=task.provenance,
        sample=held_out.images[:8] if len(held_out) else None,
    )
    return ExportedModel(report.path, parameters=report.parameters, macs=report.macs)


def with_threshold(export: Exporter, job: ExportJob) -> ExportedModel:
    """Export, and where the task's answers are scores, again with the device's own threshold in the file.

    The threshold comes from the exported model's scores of held-out examples.
    """
    from edge_client.inference.onnx_model import load_model

    exported = export(job)
    held_out = job.data.held_out
    if held_out.learning_task.usual is None or not len(held_out):
        return exported
    answers = load_model(exported.path, threads=1).answers(held_out.images, held_out.labels)
    threshold = held_out.learning_task.threshold(answers)
    if threshold is None:
        return exported
    about = job.task.preprocessing.model_copy(update={"threshold": threshold})
    return export(replace(job, task=job.task.model_copy(update={"preprocessing": about})))


def with_frequencies(export: Exporter, job: ExportJob) -> ExportedModel:
    """Export, and again with scores that know how frequent each class is on the device, where that is better.

    They know it by the array that is added to them, which is found by exporting with each that fits.
    """
    from edge_client.agent.device_training import MIN_EXAMPLES, useful_offsets
    from edge_client.inference.onnx_model import load_model

    def outputs(images: Pixels) -> Inputs:
        return load_model(exported.path, threads=1).logits(images)

    exported = export(job)
    offsets = useful_offsets(job.task, job.data, lambda compared: outputs(compared.images))
    if not offsets.any():
        return exported
    images = job.data.held_out.images[:MIN_EXAMPLES]
    before = outputs(images)
    note = f"classes that this device lacks count 1/{job.task.class_odds:g} of those that it has most of"
    about = {**job.task.provenance, "class_frequencies": note}
    noted = replace(job, task=job.task.model_copy(update={"provenance": about}))
    for name in reversed([*job.arrays]):
        if kind_of(job.arrays, name)[1] != offsets.shape:
            continue
        exported = export(replace(noted, arrays={**job.arrays, name: job.arrays[name] + offsets}))
        if np.allclose(outputs(images), before + offsets, atol=1e-3):
            log.info("%s", note)
            return exported
    return export(job)


def _given_graph(job: ExportJob) -> bytes | None:
    """The exported graph without weights, if the task includes it."""
    ref = job.task.blobs.get(GRAPH)
    return None if ref is None else job.context.store.blob_path(ref.digest).read_bytes()
