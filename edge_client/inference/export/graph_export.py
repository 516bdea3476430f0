"""Draws a network's graph with torch's exporter: an ONNX model whose weights are inputs of any shape.

The inputs are named as in the module's state, and no weight is folded into the graph, so that it fits every
sub-model with the same operators. Drawing takes 5 to 20 seconds of processor time, nearly all of it in torch.
"""

import math

import numpy as np
import onnx
import torch
from torch import nn

from edge_client.inference.export.refusal import ExportRefused
from edge_client.inference.export.weights import weights_of
from edge_client.models.graphs.checks import OPSET, first_line
from edge_client.models.graphs.exporter import quiet
from edge_client.models.graphs.filling import BUFFERS, DEPTH_WISE, INPUT, OUTPUT
from edge_client.models.modes import device_of, evaluating

INFERRED = "inferred"
"""Name of the shape that flattens any input: the batch axis, and one axis for all others."""


def draw(module: nn.Module, input_shape: tuple[int, ...]) -> bytes:
    """The graph of `module` for inputs [N, *input_shape]; raises `ExportRefused` if torch cannot export."""
    device = device_of(module)
    try:
        with evaluating(module), quiet():
            # Two examples, since torch.export treats an axis of size one as a constant.
            program = torch.onnx.export(
                module,
                (torch.zeros(2, *input_shape, device=device),),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=[INPUT],
                output_names=[OUTPUT],
                optimize=False,
                verbose=False,
            )
            if program is None:
                raise ExportRefused(f"torch exported nothing for {type(module).__name__}")
            _open_weights(program, module)
            program.optimize()
    except ExportRefused:
        raise
    except Exception as error:
        # The exporter raises the errors of the user's module, and many classes of its own.
        raise ExportRefused(f"torch cannot export {type(module).__name__}: {first_line(error)}") from error
    model: onnx.ModelProto = program.model_proto
    _infer_flattening(model.graph)
    noted = {DEPTH_WISE: _depth_wise(model.graph), BUFFERS: _buffers(module)}
    _strip(model)
    onnx.helper.set_model_props(model, {key: "\n".join(names) for key, names in noted.items() if names})
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _open_weights(program: torch.onnx.ONNXProgram, module: nn.Module) -> None:
    """Turn the weights into inputs before anything is folded."""
    graph, weights = program.model.graph, weights_of(module)
    for name in [name for name in graph.initializers if name in weights]:
        value = graph.initializers.pop(name)
        value.const_value = None
        graph.inputs.append(value)


def _infer_flattening(graph: onnx.GraphProto) -> None:
    """Let the flattened size be inferred, because it differs between sub-models."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in graph.value_info}
    found = False
    for node in graph.node:
        if node.op_type != "Reshape" or node.input[0] not in shapes or node.input[1] not in constants:
            continue
        batch, *rest = shapes[node.input[0]]
        features = math.prod(axis.dim_value for axis in rest)
        if batch.dim_param and features and constants[node.input[1]].tolist() == [-1, features]:
            found = True
            node.input[1] = INFERRED
            # A zero in the shape means the batch axis, not an empty one.
            del node.attribute[:]
    if found:
        graph.initializer.append(onnx.numpy_helper.from_array(np.array([0, -1], np.int64), INFERRED))


def _depth_wise(graph: onnx.GraphProto) -> list[str]:
    """The weights of convolutions with a group per channel, whose number differs between sub-models."""
    shapes = {
        weight.name: [axis.dim_value for axis in weight.type.tensor_type.shape.dim]
        for weight in graph.input[1:]
    }
    found = set()
    for node in graph.node:
        groups = [entry.i for entry in node.attribute if node.op_type == "Conv" and entry.name == "group"]
        if groups and groups[0] > 1 and shapes.get(node.input[1], [])[:2] == [groups[0], 1]:
            found.add(node.input[1])
    return sorted(found)


def _buffers(module: nn.Module) -> list[str]:
    """The weights that are no parameters, and further names of the same parameter."""
    return sorted(weights_of(module).keys() - dict(module.named_parameters()).keys())


def _strip(model: onnx.ModelProto) -> None:
    """Drop shapes, unused constants and the exporter's notes, which concern one sub-model or this machine."""
    graph = model.graph
    used = {name for node in graph.node for name in node.input} | {output.name for output in graph.output}
    constants = [constant for constant in graph.initializer if constant.name in used]
    del graph.initializer[:]
    graph.initializer.extend(constants)
    del graph.value_info[:]
    for weight in graph.input[1:]:
        for axis in weight.type.tensor_type.shape.dim:
            axis.Clear()
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
