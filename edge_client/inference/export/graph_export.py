"""Draws a network's graph with torch's exporter: an ONNX model whose weights are inputs of any shape.

The inputs are named as in the module's state, and no weight is folded into the graph, so that it fits every
sub-model with the same operators; `models/graphs/portable.py` rewrites what is complete. Drawing takes 5 to
20 seconds of processor time, nearly all of it in torch.
"""

import contextlib
import hashlib
import logging
import math
import os
from collections.abc import Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from torch import Tensor, nn

from edge_client.inference.export.metadata import ExportRefused, drop_notes
from edge_client.models import fixed_state, modes
from edge_client.models.graphs import filling
from edge_client.models.graphs.checks import OPSET, GraphRefused, first_line
from edge_client.models.graphs.exporter import quiet, reason_of
from edge_client.models.graphs.filling import BUFFERS, DEPTH_WISE, INPUT, MAX_GRAPH_BYTES, OUTPUT
from edge_client.storage.atomic_files import write_synced
from edge_client.system.libraries import release

_NUMBERS = frozenset({torch.float16, torch.float32, torch.float64})


def weights_of(module: nn.Module) -> dict[str, Tensor]:
    """The tensors of a module's state that are inputs of its graph."""
    sent = fixed_state.distinct(fixed_state.sent_tensors(module))
    return {name: tensor.detach() for name, tensor in sent.items() if tensor.dtype in _NUMBERS}


def fill(graph: bytes, module: nn.Module, input_shape: tuple[int, ...]) -> Any:
    """The model of `graph` with the weights of `module`; raises `ExportRefused` for an invalid graph."""
    weights = {name: tensor.detach().cpu().numpy() for name, tensor in weights_of(module).items()}
    try:
        filling.check_inference_graph(graph, input_shape)
        onnx.checker.check_model(graph)
        return filling.fill(graph, weights, input_shape)
    except GraphRefused as error:
        raise ExportRefused(str(error)) from error
    except onnx.checker.ValidationError as error:
        raise ExportRefused(f"the graph is not valid ONNX: {first_line(error)}") from error


INFERRED = "inferred"  # how the names of shapes begin that fit any sub-model


def draw_graph(module: nn.Module, input_shape: tuple[int, ...]) -> bytes:
    """The graph of `module` for inputs [N, *input_shape]; raises `ExportRefused` if torch cannot export."""
    device = modes.device_of(module)
    try:
        with modes.evaluating(module), quiet():
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
    except Exception as error:  # errors of the user's module, and many classes of the exporter's own
        raise ExportRefused(f"torch cannot export {type(module).__name__}: {reason_of(error)}") from error
    model: onnx.ModelProto = program.model_proto
    _infer_sizes(model.graph)
    buffers = sorted(weights_of(module).keys() - dict(module.named_parameters()).keys())
    noted = {DEPTH_WISE: _depth_wise(model.graph), BUFFERS: buffers}
    _strip(model)
    onnx.helper.set_model_props(model, {key: "\n".join(names) for key, names in noted.items() if names})
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _open_weights(program: torch.onnx.ONNXProgram, module: nn.Module) -> None:
    """Turn the weights into inputs before anything is folded; the exporter may use a weight's second name."""
    graph, tensors, weights = program.model.graph, fixed_state.sent_tensors(module), weights_of(module)
    firsts = {id(tensors[name]): name for name in weights}
    inputs: dict[str, Any] = {}
    for name in [name for name in graph.initializers if name in tensors]:
        first = firsts.get(id(tensors[name]))
        if first is None:
            continue
        value = graph.initializers.pop(name)
        value.const_value = None
        if first in inputs:
            ir.convenience.replace_all_uses_with(value, inputs[first])
            continue
        value.name, inputs[first] = first, value
        graph.inputs.append(value)


def _infer_sizes(graph: onnx.GraphProto) -> None:
    """Let each Reshape infer the first size that it changes, because it differs between sub-models.

    These are flattened channels, and the number of attention's heads.
    """
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in graph.value_info}
    found: dict[str, tuple[int, ...]] = {}
    for node in graph.node:
        if node.op_type != "Reshape" or node.input[0] not in shapes or node.input[1] not in constants:
            continue
        sizes = _infer_reshape(shapes[node.input[0]], constants[node.input[1]].tolist())
        if sizes is not None:
            node.input[1] = "_".join([INFERRED, *map(str, sizes)])
            found[node.input[1]] = sizes
            # A zero in the shape means the axis of the input, not an empty one.
            del node.attribute[:]
    graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(sizes, np.int64), name) for name, sizes in found.items()
    )


def _infer_reshape(axes: Sequence[Any], sizes: Sequence[int]) -> tuple[int, ...] | None:
    """Sizes [-1, ...] of a Reshape of `axes` [batch, ...] as 0 for axes that stay and -1 for the next one."""
    known = [axis.dim_value for axis in axes[1:]]
    opens = len(sizes) > 1 and sizes[0] == -1 and len(axes) > 0 and axes[0].dim_param
    if not opens or 0 in known or math.prod(known) != math.prod(sizes[1:]):
        return None
    pairs = zip(known, sizes[1:-1], strict=False)
    kept = 1 + len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
    return (*[0] * kept, -1, *sizes[kept + 1 :])


def _depth_wise(graph: onnx.GraphProto) -> list[str]:
    """The weights of convolutions in groups, whose number differs between sub-models.

    A group has as many outputs as inputs: one in depth-wise convolutions.
    """
    weights, found = graph.input[1:], set()
    shapes = {each.name: [axis.dim_value for axis in each.type.tensor_type.shape.dim] for each in weights}
    for node in graph.node:
        groups = [entry.i for entry in node.attribute if node.op_type == "Conv" and entry.name == "group"]
        outputs, inputs = shapes.get(node.input[1], [0, 0])[:2] if groups else (0, 0)
        if groups and groups[0] > 1 and outputs == groups[0] * inputs > 0:
            found.add(node.input[1])
    return sorted(found)


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
    drop_notes(model)


# Cache of the graphs drawn on this machine, for later exports of the same kind of network.
log = logging.getLogger(__name__)

TRIED = 8  # number of graphs of one kind that are tried, the newest first: each costs a comparison


def known_graphs(module: nn.Module, input_shape: tuple[int, ...]) -> Iterator[bytes]:
    with contextlib.suppress(OSError, RuntimeError):
        graphs = _folder(module, input_shape).glob("*.onnx")
        paths = sorted(graphs, key=lambda path: path.stat().st_mtime, reverse=True)
        yield from [path.read_bytes() for path in paths[:TRIED] if path.stat().st_size <= MAX_GRAPH_BYTES]


def keep_graph(module: nn.Module, input_shape: tuple[int, ...], graph: bytes) -> None:
    """Store a graph; a failure is only logged, since the graph can be drawn again."""
    if len(graph) > MAX_GRAPH_BYTES:
        return
    try:
        path = _folder(module, input_shape) / f"{hashlib.sha256(graph).hexdigest()}.onnx"
        write_synced(path, graph, durable=False)
    except (OSError, RuntimeError) as error:
        log.info("the graph is not kept: %s", error)


def _folder(module: nn.Module, input_shape: tuple[int, ...]) -> Path:
    """The folder of networks with the same class and weight names, drawn by the same code and libraries.

    Raises `RuntimeError` if there is no home directory.
    """
    code = hashlib.sha256(Path(__file__).with_name("graph_export.py").read_bytes()).hexdigest()
    versions = [release(name) or "none" for name in ("torch", "onnx", "onnxscript")]
    kind = (code, OPSET, versions, type(module).__qualname__, input_shape, sorted(weights_of(module)))
    return graphs_folder() / hashlib.sha256(repr(kind).encode()).hexdigest()[:16]


def graphs_folder() -> Path:
    """The folder of drawn graphs; raises `RuntimeError` if there is no home directory."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.environ.get("EDGE_GRAPHS") or f"{base}/edge-federation/graphs").expanduser()
