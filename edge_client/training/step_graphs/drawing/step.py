"""Draws a step graph: the forward and the backward pass of a network on one batch, as an ONNX model.

Autograd runs on symbolic tensors, which records the kernels of both passes (`make_fx`); torch's exporter
turns them into ONNX's own operators. The batch axis is free, and all weights are inputs. Every graph is run
and compared with torch before it is used. Drawing takes 4 seconds (an MLP) to a minute (56 layers).
"""

import json
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, fx, nn

from edge_client.models.graphs.exporter import quiet
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.decompositions import step_decompositions
from edge_client.training.step_graphs.drawing.passes import Passes, passes_of
from edge_client.training.step_graphs.drawing.pooling import onnx_max_pool
from edge_client.training.step_graphs.drawing.transposes import fuse_transposes
from edge_client.training.step_graphs.running.memory import working_memory
from schemas.errors import EdgeError
from schemas.strategy import Component
from schemas.submodel import ChannelMap, SubModelSpec

OPSET = 18
IR_VERSION = 8
BATCH = "batch"
TRACED_EXAMPLES = 7
"""Examples while tracing: no size of a network, so that no axis is mistaken for the batch."""
COMPARED_EXAMPLES = (5, 16)
COMPARISONS = 3
"""Batches of each size, of which one must agree: rounding decides which of two nearly equal maxima has the
gradient, whereas a wrong graph differs on every batch."""
TOLERANCE = 1e-3
"""Largest norm of the difference from torch, relative to the norm of an output."""
ROUNDING, SENSITIVITY = 1e-7, 100.0
"""Relative disturbance of the parameters, and how many times its effect a graph may differ."""
RANDOM = ("bernoulli", "dropout", "rand", "normal_")


class DrawingRefused(EdgeError):
    """The step cannot be drawn, or its graph computes something else than torch."""


def draw_step(
    module: nn.Module,
    input_shape: tuple[int, ...],
    objectives: Sequence[Component] = (),
    *,
    spec: SubModelSpec | None = None,
    channel_map: ChannelMap | None = None,
    trains: bool = True,
) -> bytes:
    """The step graph of `module`, which is the sub-model `spec` of the network of `channel_map`.

    Without `trains` it is the graph of one forward pass, for objectives that only observe. Equal arguments
    give equal bytes, whatever the weights. Raises `DrawingRefused` with the reason.
    """
    try:
        passes = passes_of(
            module, input_shape, objectives, spec or SubModelSpec(), channel_map, trains=trains
        )
        example = passes.example(input_shape, TRACED_EXAMPLES)
        model = _exported(_traced(passes, example), passes, example)
    except DrawingRefused:
        raise
    except Exception as error:
        # Tracer and exporter raise the errors of a user's module, and many classes of their own.
        raise DrawingRefused(
            f"a step of {type(module).__name__} cannot be drawn: {_first_line(error.__cause__ or error)}"
        ) from error
    data = _finished(model, passes)
    _compare(data, passes, input_shape)
    return data


def _traced(passes: Passes, example: Mapping[str, Tensor]) -> fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [*example]

    def run(*tensors: Tensor) -> list[Tensor]:
        return [*passes.run(dict(zip(inputs, tensors, strict=True))).values()]

    traced = make_fx(run, decomposition_table=step_decompositions(), tracing_mode="symbolic")
    graph: fx.GraphModule = traced(*example.values())
    if drawn := sorted({str(node.target) for node in graph.graph.nodes if _is_random(node)}):
        raise DrawingRefused(f"a step draws random numbers ({', '.join(drawn)}), which a graph cannot repeat")
    return graph


def _is_random(node: fx.Node) -> bool:
    return node.op == "call_function" and any(name in str(node.target) for name in RANDOM)


class _Traced(nn.Module):
    """A traced graph as a module, which the exporter asks for."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, *tensors: Tensor) -> Any:
        return self.graph(*tensors)


def _exported(graph: fx.GraphModule, passes: Passes, example: Mapping[str, Tensor]) -> onnx.ModelProto:
    batch = torch.export.Dim(BATCH)
    with quiet():
        program = torch.onnx.export(
            _Traced(graph).eval(),
            tuple(example.values()),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=(tuple({0: batch} if passes.is_batched(name) else None for name in example),),
            input_names=[*example],
            output_names=[*passes.run(example)],
            custom_translation_table={torch.ops.edge_federation.max_pool.default: onnx_max_pool},
            verbose=False,
        )
    if program is None:
        raise DrawingRefused("torch exported nothing")
    model: onnx.ModelProto = program.model_proto
    return model


def _finished(model: onnx.ModelProto, passes: Passes) -> bytes:
    """The model's bytes with its metadata, without the exporter's notes."""
    graph = model.graph
    fuse_transposes(graph)
    fixed, per_example = working_memory(graph, BATCH)
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    del graph.value_info[:]
    model.ir_version, model.producer_name, model.producer_version = IR_VERSION, "", ""
    graph.name = ""
    metadata = {
        names.SMALLEST_BATCH: str(passes.smallest_batch),
        names.FIXED_BYTES: str(fixed),
        names.BYTES_PER_EXAMPLE: str(per_example),
        names.DROPOUTS: json.dumps(passes.dropouts, sort_keys=True),
    }
    onnx.helper.set_model_props(model, metadata)
    data: bytes = model.SerializeToString(deterministic=True)
    return data


def _compare(data: bytes, passes: Passes, input_shape: tuple[int, ...]) -> None:
    """Raise `DrawingRefused` if the graph's outputs differ from torch's at another size of the batch."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise DrawingRefused(f"onnxruntime cannot load the graph: {_first_line(error)}") from error
    for examples in COMPARED_EXAMPLES:
        batches = (passes.example(input_shape, examples, seed=seed) for seed in range(COMPARISONS))
        differing = (_first_difference(session, passes, given) for given in batches)
        found = list(takewhile(lambda difference: difference is not None, differing))
        if len(found) == COMPARISONS:
            raise DrawingRefused(f"{found[0]} with {examples} examples")


def _first_difference(session: Any, passes: Passes, given: Mapping[str, Tensor]) -> str | None:
    """The first output that differs from torch's; None if none does."""
    wanted = {value.name for value in session.get_inputs()}
    expected, moved = passes.run(given), passes.run(_disturbed(given, passes))
    outputs = session.run([*expected], {n: t.numpy() for n, t in given.items() if n in wanted})
    # Rounding leaves something of gradients that are 0, such as those of a bias before a normalisation.
    largest = max(float(known.norm()) for known in expected.values())
    for (name, known), output in zip(expected.items(), outputs, strict=True):
        difference = float((torch.from_numpy(np.asarray(output)) - known).norm())
        size = max(float(known.norm()), TOLERANCE * largest)
        allowed = TOLERANCE * size + SENSITIVITY * float((moved[name] - known).norm())
        if not difference <= allowed:
            return f"{name!r} differs from torch by {difference:.3g}"
    return None


def _disturbed(given: Mapping[str, Tensor], passes: Passes) -> dict[str, Tensor]:
    """The inputs with parameters that differ by rounding: deep networks amplify it in small batches."""
    random = torch.Generator().manual_seed(1)
    return {
        name: tensor * (1 + ROUNDING * torch.randn(tensor.shape, generator=random))
        if name in passes.trained
        else tensor
        for name, tensor in given.items()
    }


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
