"""Fills a graph with a network's weights, which makes a complete ONNX model.

A graph is untrusted input and is checked before onnxruntime folds what the weights make constant (batch
norms into convolutions).
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime
import torch
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto
from torch import Tensor, nn

from schemas.errors import EdgeError

OPSET = 18
"""The exporter's native opset: a lower one would be converted, a higher one runs on fewer runtimes."""
INPUT, OUTPUT = "input", "logits"
DEPTH_WISE = "depth-wise"
"""Metadata key under which a graph names the weights of its depth-wise convolutions."""
MAX_GRAPH_BYTES = 2 * 1024 * 1024
"""Far above the size of a graph, which has no weights: a thousand layers take a tenth of it."""
_NUMBERS = frozenset({torch.float16, torch.float32, torch.float64})


class ExportRefused(EdgeError):
    """The network cannot be exported, or its ONNX form computes something else; no file was written."""


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module's state that are inputs of its graph."""
    return {name: tensor for name, tensor in module.state_dict().items() if tensor.dtype in _NUMBERS}


def fill(graph: bytes, module: nn.Module, input_shape: tuple[int, ...]) -> ModelProto:
    """The model of `graph` with the weights of `module`; raises `ExportRefused` for an invalid graph."""
    model = _read(graph)
    _check(model, input_shape)
    weights = weights_of(module)
    inputs, opened = model.graph.input[:1], model.graph.input[1:]
    for weight in opened:
        tensor = weights.get(weight.name)
        if tensor is None:
            raise ExportRefused(f"the graph needs {weight.name!r}, which is no weight of this network")
        filled = onnx.numpy_helper.from_array(tensor.detach().cpu().numpy(), weight.name)
        if filled.data_type != weight.type.tensor_type.elem_type:
            raise ExportRefused(f"the graph has {weight.name!r} of another type than this network")
        model.graph.initializer.append(filled)
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    _count_groups(model)
    return _folded(model)


def _count_groups(model: ModelProto) -> None:
    """Set the groups of depth-wise convolutions, one per channel, from the shapes of their weights."""
    noted = {entry.key: entry.value for entry in model.metadata_props}
    depth_wise = noted.get(DEPTH_WISE, "").split()
    channels = {
        weight.name: weight.dims[0] for weight in model.graph.initializer if weight.name in depth_wise
    }
    for node in model.graph.node:
        for attribute in node.attribute if node.op_type == "Conv" else ():
            if attribute.name == "group":
                attribute.i = channels.get(node.input[1], attribute.i)


def _read(graph: bytes) -> ModelProto:
    try:
        return onnx.load_model_from_string(graph)
    except Exception as error:
        # protobuf's exception classes differ between its versions.
        raise ExportRefused(f"the graph is not valid ONNX: {first_line(error)}") from error


def _check(model: ModelProto, input_shape: tuple[int, ...]) -> None:
    """Check for ONNX's own operators, no external data, and the expected input and output."""
    graph = model.graph
    if [(opset.domain, opset.version) for opset in model.opset_import] != [("", OPSET)] or model.functions:
        raise ExportRefused(f"the graph is not of opset {OPSET} alone")
    for node in nodes(graph):
        if node.domain:
            raise ExportRefused(f"the graph has an operator of {node.domain!r}: {node.op_type}")
    if any(tensor.data_location == TensorProto.EXTERNAL for tensor in _tensors(graph)):
        raise ExportRefused("the graph refers to data outside of it")
    if not graph.input or (graph.input[0].name, *_sizes(graph.input[0])) != (INPUT, *input_shape):
        raise ExportRefused(f"the graph does not take {list(input_shape)} as {INPUT!r}")
    if [output.name for output in graph.output] != [OUTPUT]:
        raise ExportRefused(f"the graph does not give {OUTPUT!r}")
    try:
        onnx.checker.check_model(model)
    except onnx.checker.ValidationError as error:
        raise ExportRefused(f"the graph is not valid ONNX: {first_line(error)}") from error


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph and all inner graphs."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
                for inner in (attribute.g, *attribute.graphs):
                    yield from _graphs(inner)


def nodes(graph: GraphProto) -> Iterator[NodeProto]:
    """Every node, including those of inner graphs."""
    return (node for inner in _graphs(graph) for node in inner.node)


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Every tensor in the graph, including those of inner graphs."""
    sparse = [tensor for inner in _graphs(graph) for tensor in inner.sparse_initializer]
    for inner in _graphs(graph):
        yield from inner.initializer
    for attribute in (attribute for node in nodes(graph) for attribute in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def _sizes(value: onnx.ValueInfoProto) -> tuple[int, ...]:
    """All axes except the batch axis."""
    return tuple(axis.dim_value for axis in value.type.tensor_type.shape.dim[1:])


def _folded(model: ModelProto) -> ModelProto:
    """The model as onnxruntime simplifies it, with ONNX's own operators."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    # Higher levels use operators that only onnxruntime knows.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    with tempfile.TemporaryDirectory(prefix="edge-export-") as folder:
        options.optimized_model_filepath = str(Path(folder) / "folded.onnx")
        try:
            onnxruntime.InferenceSession(
                model.SerializeToString(), options, providers=["CPUExecutionProvider"]
            )
            folded = onnx.load(options.optimized_model_filepath)
        except Exception as error:
            # onnxruntime's exceptions share no base class but Exception.
            raise ExportRefused(f"onnxruntime cannot run the export: {first_line(error)}") from error
    return _sorted(model if any(node.domain for node in nodes(folded.graph)) else folded)


def _sorted(model: ModelProto) -> ModelProto:
    """Sort weights and opsets, so that equal networks give equal bytes."""
    weights = sorted(model.graph.initializer, key=lambda weight: weight.name)
    del model.graph.initializer[:], model.opset_import[:]
    model.graph.initializer.extend(weights)
    model.opset_import.append(onnx.helper.make_opsetid("", OPSET))
    return model


def first_line(error: Exception) -> str:
    """The first line of an error's message."""
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
