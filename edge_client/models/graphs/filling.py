"""Fills an inference graph with a network's weights, which makes a complete ONNX model.

A graph is checked before onnxruntime folds what the weights make constant (batch norms into convolutions).
"""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_client.models.graphs import checks
from schemas.tensors.arrays import kind_of

# Opens graphs in onnxruntime on the processor: the one place that says where training's sessions run.

PROCESSOR = "CPUExecutionProvider"  # onnxruntime's name


def open_on_processor(
    graph: bytes | str | Path, options: onnxruntime.SessionOptions
) -> onnxruntime.InferenceSession:
    """A session of a graph, or of its file, on the processor alone.

    Training, the filling of graphs and their comparison with torch bind arrays in the processor's memory, and
    their results must be the same on every board. Models that are served take a provider by trial
    (`edge_client/inference/providers`).
    """
    return onnxruntime.InferenceSession(graph, options, providers=[PROCESSOR])


INPUT, OUTPUT = "input", "logits"
# Metadata key under which a graph names the weights of convolutions in groups of as many outputs as inputs.
DEPTH_WISE = "depth-wise"
BUFFERS = "buffers"  # metadata key of the arrays that are no parameters, such as running statistics
MAX_GRAPH_BYTES = 2 * 1024 * 1024  # far above a graph without weights: a thousand layers take a tenth

Weights = Mapping[str, NDArray[Any]]


def fill(graph: bytes, weights: Weights, input_shape: tuple[int, ...]) -> Any:
    """The model of `graph` with these weights, folded; raises `GraphRefused` for an invalid graph.

    `input_shape` is [C, H, W]. Every weight is read once, one after the other.
    """
    model = check_inference_graph(graph, input_shape)
    inputs, open_weights = list(model.graph.input[:1]), list(model.graph.input[1:])
    _count_groups(model, weights)
    for value in open_weights:
        model.graph.initializer.append(_constant(value, weights))
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    return _simplify_model(model)


def open_graph(graph: bytes, weights: Weights, input_shape: tuple[int, ...]) -> bytes:
    """The model of `graph` for weights of these shapes, which stay inputs; raises `GraphRefused`."""
    model = check_inference_graph(graph, input_shape)
    _count_groups(model, weights)
    return bytes(model.SerializeToString(deterministic=True))


def open_features(graph: bytes, weights: Weights, input_shape: tuple[int, ...]) -> tuple[bytes, str]:
    """As `open_graph`, with what the head takes as output; also the head's name.

    Raises `GraphRefused` for a graph whose outputs are not those of a linear layer.
    """
    model = check_inference_graph(graph, input_shape)
    _count_groups(model, weights)
    head = next((node for node in model.graph.node if OUTPUT in node.output), None)
    name = head.input[1].removesuffix(".weight") if head is not None and head.op_type == "Gemm" else ""
    if head is None or f"{name}.weight" not in weights:
        raise checks.GraphRefused("the graph does not end in a linear layer with a weight of this network")
    (output,) = model.graph.output
    output.name = head.input[0]
    output.type.tensor_type.ClearField("shape")
    return bytes(model.SerializeToString(deterministic=True)), name


def check_inference_graph(graph: bytes, input_shape: tuple[int, ...]) -> Any:
    """The parsed model of a graph without weights; raises `GraphRefused` for any other bytes."""
    model = checks.read_graph(graph, max_bytes=MAX_GRAPH_BYTES)
    checks.check_operators(model)
    values = model.graph.input
    sizes = [axis.dim_value for value in values[:1] for axis in value.type.tensor_type.shape.dim[1:]]
    if not values or (values[0].name, *sizes) != (INPUT, *input_shape):
        raise checks.GraphRefused(f"the graph does not take {list(input_shape)} as {INPUT!r}")
    if [output.name for output in model.graph.output] != [OUTPUT]:
        raise checks.GraphRefused(f"the graph does not give {OUTPUT!r}")
    return model


def noted_names(model: Any, key: str) -> frozenset[str]:
    noted = {entry.key: entry.value for entry in model.metadata_props}
    return frozenset(noted.get(key, "").split())


def _constant(value: Any, weights: Weights) -> Any:
    if value.name not in weights:
        raise checks.GraphRefused(f"the graph needs {value.name!r}, which is not a weight of this network")
    array = np.asarray(weights[value.name])
    kind = checks.CONSTANT_TYPES.get(array.dtype.name)
    if kind != value.type.tensor_type.elem_type:
        raise checks.GraphRefused(f"the graph has {value.name!r} of another type than this network")
    return checks.TensorProto(name=value.name, dims=array.shape, data_type=kind, raw_data=array.tobytes())


def _count_groups(model: Any, weights: Weights) -> None:
    """Set the numbers of convolutions' groups from weights of shapes [outputs, inputs of a group, ...]."""
    shapes = {name: kind_of(weights, name)[1] for name in noted_names(model, DEPTH_WISE) if name in weights}
    counts = {name: shape[0] // shape[1] for name, shape in shapes.items() if len(shape) > 1 and shape[1]}
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Conv" and len(node.input) > 1 else ():
            if attribute.name == "group":
                attribute.i = counts.get(node.input[1], attribute.i)


def session_of(model: Any, options: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
    """A session of an ONNX message for a single run, which holds the weights once.

    Otherwise it would keep the bytes from which it is made, and packed copies of the weights.
    """
    options.add_session_config_entry("session.disable_prepacking", "1")
    with tempfile.TemporaryDirectory(prefix="edge-export-") as folder:
        source = Path(folder) / "model.onnx"
        source.write_bytes(model.SerializeToString())
        return open_on_processor(source, options)


def _simplify_model(model: Any) -> Any:
    """The model as onnxruntime simplifies it, with ONNX's own operators."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Higher levels use operators that only onnxruntime knows.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory(prefix="edge-export-") as folder:
        target = Path(folder) / "folded.onnx"
        options.optimized_model_filepath = str(target)
        with checks.refused_if_it_cannot_run():
            session_of(model, options)
            folded = checks.ModelProto.FromString(target.read_bytes())
    return _sort_weights(model if any(node.domain for node in checks.nodes_of(folded.graph)) else folded)


def _sort_weights(model: Any) -> Any:
    """The model with sorted weights and one opset, so that equal networks give equal bytes."""
    weights = sorted(model.graph.initializer, key=lambda weight: str(weight.name))
    del model.graph.initializer[:], model.opset_import[:]
    model.graph.initializer.extend(weights)
    model.opset_import.add(domain="", version=checks.OPSET)
    return model
