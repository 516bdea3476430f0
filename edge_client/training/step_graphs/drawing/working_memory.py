"""The memory that a run of a graph takes for its values and its convolutions, counted from their shapes.

onnxruntime computes a convolution as a product of matrices, for which it copies windows of the inputs as
columns (`convolution_buffer`).
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
"""Bytes per element by ONNX's number of the type."""
FEW, MANY = 2, 32
"""Numbers of examples for which memory is counted."""
SEGMENT = 128 * 128
"""Elements of the columns that onnxruntime copies at once where it computes a product in segments."""
VIEWS = ("Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators whose outputs are their inputs with another shape."""
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
    bytes_of = {value.name: _width(value) * math.prod(shapes[value.name]) for value in graph.value_info}
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


def _width(value: Any) -> int:
    return BYTES.get(value.type.tensor_type.elem_type, 4)


def _size(text: str, sizes: dict[str, int]) -> int:
    """The size of an axis such as `64*batch`; 1 for anything else."""
    product = 1
    for factor in text.split("*"):
        factor = factor.strip()
        product *= sizes.get(factor, int(factor) if re.fullmatch(r"\d+", factor) else 1)
    return product
