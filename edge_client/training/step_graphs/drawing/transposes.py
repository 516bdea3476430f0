"""Removes transposes: pairs that cancel, and those of matrices, which products read as they are."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from numpy.typing import NDArray

# Frees the batch axis of a graph that was traced with a fixed number of examples.

PRIMES = (1009, 1013, 1019, 1021, 1031, 1033, 1039)


def number_of_examples(sizes: Iterable[int]) -> int:
    """A prime that divides none of these sizes."""
    known = [size for size in sizes if size]
    return next(prime for prime in PRIMES if all(size % prime for size in known))


def free_axes(graph: ir.Graph, examples: int, batch: str) -> None:
    """Name each axis that is a multiple of `examples`: `batch`, or for instance `64*batch`."""
    for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
        if value.shape is not None:
            sizes: list[Any] = list(value.shape)
            for axis, size in enumerate(sizes):
                if isinstance(size, int) and size and size % examples == 0:
                    name = batch if size == examples else f"{size // examples}*{batch}"
                    sizes[axis] = ir.SymbolicDim(name)
            value.shape = ir.Shape(sizes)


def free_initializers(graph: ir.Graph, examples: int, inputs: str) -> None:
    """Compute initializers with multiples of `examples` from the length of the graph's input of that name.

    A Reshape finds the length by itself.
    """
    source = next(value for value in graph.inputs if value.name == inputs)
    length = ir.node("Shape", [source], {"start": 0, "end": 1})
    graph.insert_before(graph[0], length)
    for value in [*graph.initializers.values()]:
        numbers = _numbers(value)
        counts = np.asarray((numbers != 0) & (numbers % examples == 0))
        if not counts.any():
            continue
        # A shape may lack one size.
        is_open = counts.sum() == 1 and (numbers >= 0).all()
        if is_open and all(use.node.op_type == "Reshape" and use.idx == 1 for use in value.uses()):
            value.const_value = ir.tensor(np.where(counts, -1, numbers), name=value.name)
            continue
        computed = _make_nodes(length.outputs[0], numbers, counts, examples)
        graph.insert_after(length, computed)
        ir.convenience.replace_all_uses_with(value, computed[-1].outputs[0])


def _numbers(value: ir.Value) -> NDArray[Any]:
    """The integers of an initializer, or its only number; nothing of others."""
    found = value.const_value.numpy() if value.const_value is not None else np.array([])
    return found if found.dtype == np.int64 or found.size == 1 else np.array([])


def _make_nodes(
    length: ir.Value, numbers: NDArray[Any], counts: NDArray[np.bool_], examples: int
) -> list[ir.Node]:
    kind = ir.DataType.from_numpy(numbers.dtype)
    flat, multiples = numbers.reshape(-1), counts.reshape(-1)
    cast = ir.node("Cast", [length], {"to": kind})
    each = _constant(np.where(multiples, flat // examples, 0).astype(flat.dtype))
    rest = _constant(np.where(multiples, 0, flat).astype(flat.dtype))
    product = ir.node("Mul", [cast.outputs[0], each.outputs[0]])
    total = ir.node("Add", [product.outputs[0], rest.outputs[0]])
    shape = _constant(np.array(numbers.shape, dtype=np.int64))
    shaped = ir.node("Reshape", [total.outputs[0], shape.outputs[0]])
    return [cast, each, rest, product, total, shape, shaped]


def _constant(numbers: NDArray[Any]) -> ir.Node:
    return ir.node("Constant", [], {"value": ir.tensor(numbers)})


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
