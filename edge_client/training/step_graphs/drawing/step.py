"""Draws a step graph: the forward and the backward pass of a network on one batch, as an ONNX model.

Autograd runs on tensors without data, which records the kernels of both passes (`make_fx`); torch's exporter
turns them into ONNX's own operators. The batch axis is free, and all weights are inputs. Every graph is run
and compared with torch before it is used. Drawing takes 0.3 seconds (an MLP) to 5 (20 layers).
"""

import json
from collections.abc import Mapping, Sequence

import onnx
from torch import Tensor, fx, nn

from edge_client.data.tasks.learning_task import LearningTask
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.models.attributes import attributes_of, differing_places, users_parts
from edge_client.models.graphs.exporter import reason_of
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.comparison import compare_with_torch
from edge_client.training.step_graphs.drawing.decompositions import step_decompositions
from edge_client.training.step_graphs.drawing.export import BATCH, export
from edge_client.training.step_graphs.drawing.free_batch import number_of_examples
from edge_client.training.step_graphs.drawing.passes import Passes, passes_of
from edge_client.training.step_graphs.drawing.refusal import DrawingRefused
from edge_client.training.step_graphs.drawing.transposes import fuse_transposes
from edge_client.training.step_graphs.drawing.working_memory import working_memory
from schemas.strategy import Component
from schemas.submodel import ChannelMap, SubModelSpec

IR_VERSION = 8
RANDOM = ("bernoulli", "dropout", "rand", "normal_")


def draw_step(
    module: nn.Module,
    input_shape: tuple[int, ...],
    objectives: Sequence[Component] = (),
    *,
    spec: SubModelSpec | None = None,
    channel_map: ChannelMap | None = None,
    trains: bool = True,
    task: LearningTask = CLASSIFICATION,
) -> bytes:
    """The step graph of `module`, which is the sub-model `spec` of the network of `channel_map`.

    Without `trains` it is the graph of one forward pass, for objectives that only observe. Equal arguments
    give equal bytes, whatever the weights. Raises `DrawingRefused` with the reason.
    """
    try:
        passes = passes_of(
            module,
            input_shape,
            objectives,
            spec or SubModelSpec(),
            channel_map,
            trains=trains,
            task=task,
        )
        parts = users_parts(passes.whole)
        before = attributes_of(passes.whole, parts)
        model = _exported(passes, input_shape)
        if changed := differing_places(before, attributes_of(passes.whole, parts)):
            raise DrawingRefused(f"a step changes '{changed[0]}' of the network, which a graph does not keep")
    except DrawingRefused:
        raise
    except Exception as error:
        # Tracer and exporter raise the errors of a user's module, and many classes of their own.
        raise DrawingRefused(
            f"a step of {type(module).__name__} cannot be drawn: {reason_of(error)}"
        ) from error
    data = _finished(model, passes)
    compare_with_torch(data, passes, input_shape)
    return data


def _exported(passes: Passes, input_shape: tuple[int, ...]) -> onnx.ModelProto:
    few = passes.example(input_shape, passes.smallest_batch)
    examples = number_of_examples(size for tensor in few.values() for size in tensor.shape)
    # Tracing reads shapes alone: the memory of these arrays is never written.
    example = {
        name: tensor.new_empty(examples, *tensor.shape[1:]) if passes.is_batched(name) else tensor
        for name, tensor in few.items()
    }
    return export(_traced(passes, example), example, [*passes.run(few)], examples)


def _traced(passes: Passes, example: Mapping[str, Tensor]) -> fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [*example]

    def run(*tensors: Tensor) -> list[Tensor]:
        return [*passes.run(dict(zip(inputs, tensors, strict=True))).values()]

    # A network may have constants, which are tensors with data.
    traced = make_fx(
        run, decomposition_table=step_decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True
    )
    graph: fx.GraphModule = traced(*example.values())
    if drawn := sorted({str(node.target) for node in graph.graph.nodes if _is_random(node)}):
        raise DrawingRefused(f"a step draws random numbers ({', '.join(drawn)}), which a graph cannot repeat")
    return graph


def _is_random(node: fx.Node) -> bool:
    return node.op == "call_function" and any(name in str(node.target) for name in RANDOM)


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
