"""The memory that a run of a graph takes for its values, counted from their shapes."""

import re
from collections.abc import Iterable
from typing import Any

BYTES = {1: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8}
"""Bytes per element by ONNX's number of the type."""


def working_memory(graph: Any, batch: str) -> tuple[int, int]:
    """Bytes of the values that exist at once in a run, fixed and per example of `batch`.

    Values are freed after their last use; inputs and outputs of the graph do not count.
    """
    few, more = (_peak(graph, {batch: examples}) for examples in (2, 10))
    each = max(0, (more - few) // 8)
    return max(0, few - 2 * each), each


def _peak(graph: Any, sizes: dict[str, int]) -> int:
    known = {value.name: _bytes(value, sizes) for value in graph.value_info}
    ends = {name: place for place, node in enumerate(graph.node) for name in node.input}
    now = peak = 0
    for place, node in enumerate(graph.node):
        now += sum(known.get(name, 0) for name in node.output)
        peak = max(peak, now)
        now -= sum(known.get(name, 0) for name in _ended(node, ends, place))
    return peak


def _ended(node: Any, ends: dict[str, int], place: int) -> Iterable[str]:
    """Values that nothing reads after this node."""
    return {name for name in (*node.input, *node.output) if ends.get(name, place) == place}


def _bytes(value: Any, sizes: dict[str, int]) -> int:
    found = BYTES.get(value.type.tensor_type.elem_type, 4)
    for axis in value.type.tensor_type.shape.dim:
        found *= axis.dim_value or _size(axis.dim_param, sizes)
    return found


def _size(text: str, sizes: dict[str, int]) -> int:
    """The size of an axis such as `64*batch`; 1 for anything else."""
    product = 1
    for factor in text.split("*"):
        factor = factor.strip()
        product *= sizes.get(factor, int(factor) if re.fullmatch(r"\d+", factor) else 1)
    return product
