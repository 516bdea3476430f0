"""The memory that a run of a graph takes for its values and its convolutions, counted from their shapes.

onnxruntime computes a convolution of volumes, such as the gradient of a kernel, as a product of matrices, for
which it copies all windows of the inputs as columns: up to 25 times the inputs for a kernel of 5x5. Those of
maps need no such copy.
"""

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
"""Bytes per element by ONNX's number of the type."""
VOLUMES = 5
"""Axes of the kernel of a convolution of volumes."""


def working_memory(graph: Any, batch: str) -> tuple[int, int]:
    """Bytes of the values and columns that exist at once in a run, fixed and per example of `batch`.

    Values are freed after their last use; inputs and outputs of the graph do not count.
    """
    few, more = (_peak(graph, {batch: examples}) for examples in (2, 10))
    each = max(0, (more - few) // 8)
    return max(0, few - 2 * each), each


def _peak(graph: Any, sizes: dict[str, int]) -> int:
    shapes = {value.name: _shape(value, sizes) for value in (*graph.value_info, *graph.input, *graph.output)}
    known = {value.name: _width(value) * math.prod(shapes[value.name]) for value in graph.value_info}
    ends = {name: place for place, node in enumerate(graph.node) for name in node.input}
    now = peak = 0
    for place, node in enumerate(graph.node):
        now += sum(known.get(name, 0) for name in node.output)
        peak = max(peak, now + _columns(node, shapes))
        now -= sum(known.get(name, 0) for name in _ended(node, ends, place))
    return peak


def _ended(node: Any, ends: dict[str, int], place: int) -> Iterable[str]:
    """Values that nothing reads after this node."""
    return {name for name in (*node.input, *node.output) if ends.get(name, place) == place}


def _columns(node: Any, shapes: Mapping[str, list[int]]) -> int:
    """Bytes of the columns of a convolution of volumes: a window for each place of the outputs."""
    if node.op_type != "Conv":
        return 0
    kernel, outputs = shapes.get(node.input[1], []), shapes.get(node.output[0], [])
    return 4 * math.prod(kernel[1:]) * math.prod(outputs[2:]) if len(kernel) == VOLUMES else 0


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
