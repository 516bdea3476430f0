"""Size and arithmetic of a network from its ONNX graph, as torch counts them."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnxruntime

from edge_client.models.graphs import checks, filling
from schemas.tensors.arrays import kind_of


def parameter_count(graph: bytes, arrays: filling.Weights, input_shape: tuple[int, ...]) -> int:
    """The number of parameters among a network's arrays, without the buffers that its graph names."""
    buffers = filling.noted_names(filling.check_inference_graph(graph, input_shape), filling.BUFFERS)
    return sum(math.prod(kind_of(arrays, name)[1]) for name in arrays if name not in buffers)


def count_macs(model: Any, input_shape: tuple[int, ...]) -> int:
    """Multiply-accumulates of convolutions, linear layers and products for one input of `input_shape`.

    `model` is a filled ONNX message, which does not change. It is run once on zeros for the shapes of values.
    Raises `GraphRefused` if onnxruntime cannot run it.
    """
    weights = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    layers, factors = {}, {}
    for node in model.graph.node:
        if node.op_type == "MatMul":
            factors[node.output[0]] = node.input[0]
        elif per_output := _macs_per_output(node, weights):
            layers[node.output[0]] = per_output
    known = {**weights, filling.INPUT: (1, *input_shape)}
    asked = {*layers, *factors, *factors.values()} - known.keys()
    known |= shapes_of(model, sorted(asked), input_shape)
    # Each number of a product is a sum over the last axis of its first factor.
    layers |= {name: known[factor][-1] for name, factor in factors.items()}
    return sum(math.prod(known[name]) * per_output for name, per_output in layers.items())


def _macs_per_output(node: Any, weights: dict[str, tuple[int, ...]]) -> int:
    """Multiplications for each number of the output of a `Conv` or `Gemm`; 0 for any other operator."""
    shape = weights.get(node.input[1]) if len(node.input) > 1 else None
    if not shape or node.op_type not in ("Conv", "Gemm"):
        return 0
    if node.op_type == "Conv":
        return math.prod(shape[1:])
    transposed = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
    return shape[-1] if transposed else shape[0]


def shapes_of(
    model: Any, names: list[str], input_shape: tuple[int, ...], *, batch: int = 1
) -> dict[str, tuple[int, ...]]:
    """The shapes of these values of a graph for so many examples of `input_shape`."""
    if not names:
        return {}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.enable_cpu_mem_arena = False
    # Fused operators would no longer give these outputs.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    with checks.refused_if_it_cannot_run():
        with _further_outputs(model.graph, names):
            session = filling.session_of(model, options)
        outputs = session.run(names, {filling.INPUT: np.zeros((batch, *input_shape), np.float32)})
    return {name: output.shape for name, output in zip(names, outputs, strict=True)}


@contextmanager
def _further_outputs(graph: Any, names: list[str]) -> Iterator[None]:
    """Within it the graph gives these values too: a copy of the message would hold its weights twice."""
    before = len(graph.output)
    known = {output.name for output in graph.output}
    for name in names:
        if name not in known:
            graph.output.add(name=name)
    try:
        yield
    finally:
        del graph.output[before:]
