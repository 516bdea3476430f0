"""Draws a step graph: the forward and the backward pass of a network on one batch, as an ONNX model.

Autograd runs on tensors without data, which records the kernels of both passes (`make_fx`); torch's exporter
turns them into ONNX's own operators. The batch axis is free, and all weights are inputs. Every graph is run
and compared with torch before it is used. Drawing takes 0.3 seconds (an MLP) to 5 (20 layers).
"""

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, fx, nn

from edge_client.data.tasks.learning_task import LearningTask
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.models.attributes import attributes_of, differing_places, users_parts
from edge_client.models.graphs import checks, exporter, filling
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.decompositions import step_decompositions
from edge_client.training.step_graphs.drawing.export import DrawingRefused, export
from edge_client.training.step_graphs.drawing.passes import Passes, passes_of
from edge_client.training.step_graphs.drawing.transposes import fuse_transposes, number_of_examples
from schemas import strategy, submodel

IR_VERSION = 8
RANDOM = ("bernoulli", "dropout", "rand", "normal_")


def draw_step(
    module: nn.Module,
    input_shape: tuple[int, ...],
    objectives: Sequence[strategy.Component] = (),
    *,
    spec: submodel.SubModelSpec | None = None,
    channel_map: submodel.ChannelMap | None = None,
    trains: bool = True,
    task: LearningTask = CLASSIFICATION,
    trained: Collection[str] | None = None,
    example_shape: tuple[int, ...] | None = None,
) -> bytes:
    """The step graph of `module`, which is the sub-model `spec` of the network of `channel_map`.

    It has the gradients of the arrays `trained` only, of all by default. Of a module that takes features,
    `example_shape` is that of the examples that they are of. Without `trains` it is the graph of
    one forward pass, for objectives that only observe. Equal arguments give equal bytes, whatever the
    weights. Raises `DrawingRefused` with the reason.
    """
    try:
        passes = passes_of(
            module,
            input_shape,
            objectives,
            spec or submodel.SubModelSpec(),
            channel_map,
            trains=trains,
            task=task,
            trained=trained,
            example_shape=example_shape,
        )
        parts = users_parts(passes.whole)
        before = attributes_of(passes.whole, parts)
        model = _export_step(passes, input_shape)
        if changed := differing_places(before, attributes_of(passes.whole, parts)):
            raise DrawingRefused(f"a step changes '{changed[0]}' of the network, which a graph does not keep")
    except DrawingRefused:
        raise
    except Exception as error:
        # Tracer and exporter raise the errors of a user's module, and many classes of their own.
        raise DrawingRefused(
            f"a step of {type(module).__name__} cannot be drawn: {exporter.reason_of(error)}"
        ) from error
    data = _finish_model(model, passes)
    compare_with_torch(data, passes, input_shape)
    return data


def _export_step(passes: Passes, input_shape: tuple[int, ...]) -> onnx.ModelProto:
    few = passes.example(input_shape, passes.smallest_batch)
    examples = number_of_examples(size for tensor in few.values() for size in tensor.shape)
    # Tracing reads shapes alone: the memory of these arrays is never written.
    batched = (names.INPUTS, names.LABELS, *passes.masks)
    example = {
        name: tensor.new_empty(examples, *tensor.shape[1:]) if name in batched else tensor
        for name, tensor in few.items()
    }
    return export(_trace_passes(passes, example), example, [*passes.run(few)], examples)


def _trace_passes(passes: Passes, example: Mapping[str, Tensor]) -> fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    inputs = [*example]

    def run(*tensors: Tensor) -> list[Tensor]:
        return [*passes.run(dict(zip(inputs, tensors, strict=True))).values()]

    # A network may have constants, which are tensors with data.
    traced = make_fx(
        run, decomposition_table=step_decompositions(), tracing_mode="fake", _allow_non_fake_inputs=True
    )
    graph: fx.GraphModule = traced(*example.values())
    targets = {str(node.target) for node in graph.graph.nodes if node.op == "call_function"}
    if drawn := sorted(target for target in targets if any(name in target for name in RANDOM)):
        raise DrawingRefused(f"a step draws random numbers ({', '.join(drawn)}), which a graph cannot repeat")
    return graph


def _finish_model(model: onnx.ModelProto, passes: Passes) -> bytes:
    """The model's bytes with its metadata, without the exporter's notes."""
    graph = model.graph
    fuse_transposes(graph)
    fixed, per_example = working_memory(graph, names.BATCH)
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


# Runs a drawn step in onnxruntime and compares it with torch, before anybody uses it.

COMPARED_EXAMPLES = (5, 16)
COMPARISONS = 3
"""Batches of each size, of which one must agree: rounding decides which of two nearly equal maxima has the
gradient, whereas a wrong graph differs on every batch."""
TOLERANCE = 1e-3  # largest norm of the difference from torch, relative to the norm of an output


def compare_with_torch(data: bytes, passes: Passes, input_shape: tuple[int, ...]) -> None:
    """Raise `DrawingRefused` if the graph's outputs differ from torch's at another size of the batch."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = filling.open_on_processor(data, options)
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise DrawingRefused(f"onnxruntime cannot load the graph: {checks.first_line(error)}") from error
    for examples in COMPARED_EXAMPLES:
        batches = (passes.example(input_shape, examples, seed=seed) for seed in range(COMPARISONS))
        differing = (find_difference(session, passes, given) for given in batches)
        found = list(takewhile(lambda difference: difference is not None, differing))
        if len(found) == COMPARISONS:
            raise DrawingRefused(f"{found[0]} with {examples} examples")


def find_difference(session: Any, passes: Passes, given: Mapping[str, Tensor]) -> str | None:
    """The first output that differs from torch's; None if none does."""
    wanted = {value.name for value in session.get_inputs()}
    expected, moved = passes.run(given), passes.run(_disturb_inputs(given, passes))
    outputs = session.run([*expected], {n: t.numpy() for n, t in given.items() if n in wanted})
    # Rounding leaves something of gradients that are 0, such as those of a bias before a normalisation.
    largest = max(float(known.norm()) for known in expected.values())
    for (name, known), output in zip(expected.items(), outputs, strict=True):
        difference = float((torch.from_numpy(np.asarray(output)) - known).norm())
        size = max(float(known.norm()), TOLERANCE * largest)
        allowed = TOLERANCE * size + checks.SENSITIVITY * float((moved[name] - known).norm())
        if not difference <= allowed:
            return f"{name!r} differs from torch by {difference:.3g}"
    return None


def _disturb_inputs(given: Mapping[str, Tensor], passes: Passes) -> dict[str, Tensor]:
    """The inputs with parameters that differ by rounding: deep networks amplify it in small batches."""
    random = torch.Generator().manual_seed(1)
    return {
        name: tensor * (1 + checks.ROUNDING * torch.randn(tensor.shape, generator=random))
        if name in passes.trained
        else tensor
        for name, tensor in given.items()
    }


# The memory that a run of a graph takes for its values and its convolutions, counted from their shapes.
#
# onnxruntime computes a convolution as a product of matrices, for which it copies windows of the inputs as
# columns (`convolution_buffer`).

BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}  # bytes per element by ONNX's number of the type
FEW, MANY = 2, 32  # numbers of examples for which memory is counted
SEGMENT = 128 * 128  # elements of columns that onnxruntime copies at once in a product by segments
VIEWS = ("Identity", "Reshape", "Squeeze", "Unsqueeze")  # outputs are inputs in another shape
IN_PLACE = ("Add", "Clip", "Div", "Exp", "Mul", "Neg", "Relu", "Sqrt", "Sub")
"""Operators that overwrite an input as large as the output if nothing else reads it."""

Shapes = Mapping[str, Sequence[int]]


def working_memory(graph: Any, batch: str) -> tuple[int, int]:
    """Bytes of the values and columns that exist at once in a run, fixed and per example of `batch`.

    Values are freed after their last use; inputs and outputs of the graph do not count. A run has its peak at
    different nodes with few examples and with many, and takes at most this much with numbers between.
    """
    few, more = (_peak(graph, {batch: examples}) for examples in (FEW, MANY))
    each = max(0, (more - few) // (MANY - FEW))
    return max(0, few - FEW * each), each


def convolution_buffer(inputs: Sequence[int], kernel: Sequence[int], outputs: Sequence[int]) -> int:
    """Bytes of the columns for a convolution of `inputs` [B, C, ...] with `kernel` [Co, C / groups, ...].

    As onnxruntime chooses on one thread: all columns of an image where it has more kernels than places or is
    one of several, a segment of them otherwise.
    """
    places, window = math.prod(outputs[2:]), math.prod(kernel[1:])
    groups = inputs[1] // kernel[1]
    kernels = kernel[0] // groups
    if kernels > places:
        return 4 * places * window
    if inputs[0] == groups == 1:
        return 4 * SEGMENT
    return 4 * max(places * window, places * kernels, SEGMENT)


def _peak(graph: Any, sizes: dict[str, int]) -> int:
    shapes = {value.name: _shape(value, sizes) for value in (*graph.value_info, *graph.input, *graph.output)}
    shapes.update({array.name: [*array.dims] for array in graph.initializer})
    bytes_of = {
        value.name: BYTES.get(value.type.tensor_type.elem_type, 4) * math.prod(shapes[value.name])
        for value in graph.value_info
    }
    blocks = _blocks(graph, bytes_of)
    ends = {blocks.get(name, name): place for place, node in enumerate(graph.node) for name in node.input}
    now = peak = 0
    for place, node in enumerate(graph.node):
        now += sum(bytes_of.get(name, 0) for name in node.output if blocks.get(name) == name)
        peak = max(peak, now + _buffer(node, shapes))
        ended = {blocks.get(name, name) for name in (*node.input, *node.output)}
        now -= sum(bytes_of.get(block, 0) for block in ended if ends.get(block, place) == place)
    return peak


def _blocks(graph: Any, bytes_of: Mapping[str, int]) -> dict[str, str]:
    """The value in whose memory each value of the graph lies, as onnxruntime shares it."""
    reads = Counter(name for node in graph.node for name in node.input)
    left = Counter(reads)
    blocks: dict[str, str] = {}
    for node in graph.node:
        blocks.update({name: name for name in node.output})
        first = node.output[0] if node.output else ""
        for name in node.input if first in bytes_of else ():
            # No other value that lies there is read later.
            is_last = left[blocks.get(name, name)] == 1 and bytes_of.get(name) == bytes_of[first]
            if name in blocks and (node.op_type in VIEWS or (node.op_type in IN_PLACE and is_last)):
                blocks[first] = blocks[name]
                left[blocks[name]] += reads[first]
                break
        left.subtract(blocks.get(name, name) for name in node.input)
    return blocks


def _buffer(node: Any, shapes: Shapes) -> int:
    if node.op_type not in ("Conv", "ConvTranspose"):
        return 0
    inputs, kernel, outputs = (shapes[name] for name in (*node.input[:2], node.output[0]))
    if node.op_type == "ConvTranspose":
        return 4 * math.prod(kernel[1:]) * math.prod(inputs[2:])
    if math.prod(kernel[2:]) == 1 and inputs[2:] == outputs[2:]:
        return 0
    return convolution_buffer(inputs, kernel, outputs)


def _shape(value: Any, sizes: dict[str, int]) -> list[int]:
    return [axis.dim_value or _size(axis.dim_param, sizes) for axis in value.type.tensor_type.shape.dim]


def _size(text: str, sizes: dict[str, int]) -> int:
    """The size of an axis such as `64*batch`; 1 for anything else."""
    product = 1
    for factor in text.split("*"):
        factor = factor.strip()
        product *= sizes.get(factor, int(factor) if re.fullmatch(r"\d+", factor) else 1)
    return product
