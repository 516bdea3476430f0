"""Removes transposes: pairs that cancel, and those of matrices, which products read as they are."""

from collections.abc import Container, Sequence
from typing import Any

import onnx
import onnx_ir as ir

PRODUCTS = ("MatMul", "Gemm")


def cancel_transposes(graph: ir.Graph) -> None:
    """Let a transpose that undoes another one pass on what the other one received."""
    for node in [node for node in graph if node.op_type == "Transpose"]:
        value = node.inputs[0]
        before = value.producer() if value else None
        if before is None or before.op_type != "Transpose":
            continue
        first, second = _order(before), _order(node)
        if [first[axis] for axis in second] == sorted(first):
            same = ir.node("Identity", [before.inputs[0]])
            same.outputs[0].type, same.outputs[0].shape = node.outputs[0].type, node.outputs[0].shape
            ir.convenience.replace_nodes_and_values(
                graph, node, [node], [same], [node.outputs[0]], [same.outputs[0]]
            )


def _order(node: ir.Node) -> Sequence[int]:
    return node.attributes["perm"].as_ints()


def fuse_transposes(graph: Any) -> None:
    """Let each product of matrices read its factors as they are; remove the transposes that nothing reads.

    A Gemm without a third input stands for the product. Changes `graph` in place.
    """
    transposes = [node for node in graph.node if node.op_type == "Transpose"]
    sources = {node.output[0]: node.input[0] for node in transposes if _flips(node)}
    ranks = {value.name: len(value.type.tensor_type.shape.dim) for value in (*graph.value_info, *graph.input)}
    for node in graph.node:
        if node.op_type in PRODUCTS and any(name in sources for name in node.input[:2]):
            _read_as_they_are(node, sources, ranks)
    while unread := _unread(graph, sources):
        for node in unread:
            graph.node.remove(node)


def _unread(graph: Any, among: Container[str]) -> list[Any]:
    """The nodes that make one of these values, which nothing reads."""
    read = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    return [node for node in graph.node if node.output[0] in among and node.output[0] not in read]


def _flips(node: Any) -> bool:
    return any(attribute.name == "perm" and [*attribute.ints] == [1, 0] for attribute in node.attribute)


def _read_as_they_are(node: Any, sources: dict[str, str], ranks: dict[str, int]) -> None:
    if any(name not in sources and ranks.get(name) != 2 for name in node.input[:2]):
        return
    stated = {attribute.name: attribute for attribute in node.attribute}
    for place, key in enumerate(("transA", "transB")):
        flipped = key in stated and bool(stated[key].i)
        while node.input[place] in sources:
            node.input[place] = sources[node.input[place]]
            flipped = not flipped
        if key in stated:
            node.attribute.remove(stated[key])
        node.attribute.append(onnx.helper.make_attribute(key, int(flipped)))
    node.op_type = "Gemm"
