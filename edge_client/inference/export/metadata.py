"""The metadata of an exported model, by which a runtime knows how to use it."""

import json
from collections.abc import Mapping
from typing import Any

from edge_client.data.tasks.registry import CLASSIFICATION, learning_task
from schemas.errors import EdgeError
from schemas.values import Preprocessing


class ExportRefused(EdgeError):
    """The network cannot be exported, or its ONNX form computes something else; no file was written."""


IR_VERSION = 8  # the file format of opset 18, which onnxruntime reads from 1.14 on
# Parts of the preprocessing with keys of their own: readers ignore unknown keys, not unknown parts.
APART = ("class_names", "columns")
SCALING = "scaling"
"""Metadata key of the scale, mean and deviation that are inside a file, which takes raw examples. Its
preprocessing then states none, so that readers of earlier days do not scale either."""
UNSCALED: Mapping[str, Any] = {"scale": 1.0, "mean": (0.0,), "std": (1.0,)}


def drop_notes(model: Any) -> None:
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""


def finish(
    model: Any,
    *,
    input_shape: tuple[int, ...],
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
    task: str = CLASSIFICATION.name,
) -> None:
    """Give a complete ONNX message the forms that other runtimes read, its scaling, boxes and metadata.

    It then takes raw examples: files of other runtimes have no metadata to say how to scale them.
    """
    # Imported here: who only asks for the error needs no onnxruntime.
    from edge_client.models.graphs.boxes import give_boxes
    from edge_client.models.graphs.portable import make_portable, scale_inside

    make_portable(model, input_shape)
    scale_inside(model, len(input_shape), preprocessing.scale, preprocessing.mean, preprocessing.std)
    if learning_task(task).labels == "boxes":
        give_boxes(model, input_shape)
    describe(
        model,
        input_shape=input_shape,
        preprocessing=preprocessing.model_copy(update=UNSCALED),
        provenance=provenance,
        task=task,
    )
    scaling = {part: getattr(preprocessing, part) for part in UNSCALED}
    model.metadata_props.add(key=SCALING, value=json.dumps(scaling))


def read_preprocessing(metadata: Mapping[str, str]) -> Preprocessing:
    """What becomes of raw examples, inside the file or before it; raises `ValueError` or `TypeError`."""
    parts = json.loads(metadata.get("preprocessing", "{}"))
    parts |= {name: json.loads(metadata.get(name, "[]")) for name in APART}
    return Preprocessing.model_validate(parts | json.loads(metadata.get(SCALING, "{}")))


def describe(
    model: Any,
    *,
    input_shape: tuple[int, ...],
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
    task: str = CLASSIFICATION.name,
) -> None:
    """Set the metadata of an ONNX message, and drop those of its graph.

    Keys of `provenance` get the prefix `fl.`. A file without a `task` is a classifier.
    """
    model.ir_version = IR_VERSION
    drop_notes(model)
    metadata = {key if key.startswith("fl.") else f"fl.{key}": value for key, value in provenance.items()}
    if task != CLASSIFICATION.name:
        metadata["task"] = task
    metadata["input.shape"] = json.dumps(list(input_shape))
    metadata["preprocessing"] = preprocessing.model_dump_json(exclude={*APART})
    metadata["class_names"] = json.dumps(list(preprocessing.class_names))
    if preprocessing.columns:
        metadata["columns"] = json.dumps([column.model_dump() for column in preprocessing.columns])
    for key, value in sorted(metadata.items()):
        model.metadata_props.add(key=key, value=value)
