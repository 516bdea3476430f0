"""Transformations of the graph of a training step's kernels; none changes a bit of the result.

Nodes that only autograd needed are removed. In a descent with momentum, gradients that are matrix products
are not stored: the kernel that computes one adds it to the momentum, b = factor b + g, followed by the step
w = w - rate b.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

ATEN = torch.ops.aten
WHOLE = 16  # numbers in the widest vector; the optimizer rounds a tensor's remainder differently


def without_detours(graph: fx.GraphModule) -> fx.GraphModule:
    """Remove detached views, double transpositions, and axes that a sum keeps and a view drops."""
    for node in list(graph.graph.nodes):
        source: Any = node.args[0] if node.args else None
        if node.target is ATEN.detach.default:
            _replace(node, source)
        elif node.target is ATEN.t.default and source.target is ATEN.t.default:
            _replace(node, source.args[0])
        elif node.target is ATEN.view.default and _is_kept_axis(source, dropped=node):
            source.args = source.args[:2]
            _replace(node, source)
    for node in reversed(list(graph.graph.nodes)):
        if node.target is ATEN.t.default and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def products(graph: fx.GraphModule) -> list[int]:
    """Indices of the parameters that such a descent can update."""
    return [
        place
        for place, gradient in enumerate(_outputs(graph)[1:])
        if gradient.target is ATEN.mm.default
        and len(gradient.users) == 1
        and gradient.meta["val"].numel() % WHOLE == 0
    ]


def with_descent(graph: fx.GraphModule, places: Sequence[int]) -> fx.GraphModule:
    """Let the graph update the parameters with these indices, and return only the gradients of the others.

    The parameters are its first inputs; the last ones are the b of each updated parameter, the factor, and
    minus the rate.
    """
    nodes, given = graph.graph, _given_to(graph)
    loss, *gradients = _outputs(graph)
    with nodes.inserting_before(given[-1].next):
        moved = [nodes.placeholder(f"moved_{place}") for place in places]
        factor, minus_rate = (nodes.placeholder(name, type_expr=float) for name in ("factor", "minus_rate"))
    output = nodes.output_node()
    output.args = ((loss, *(gradient for place, gradient in enumerate(gradients) if place not in places)),)
    for place, buffer in zip(places, moved, strict=True):
        gradient = gradients[place]
        with nodes.inserting_before(gradient):
            nodes.call_function(ATEN.addmm_.default, (buffer, *gradient.args), {"beta": factor})
        nodes.erase_node(gradient)
    # Both passes need the old parameters: update them at the end, those used last first.
    with nodes.inserting_before(output):
        for place, buffer in reversed(list(zip(places, moved, strict=True))):
            nodes.call_function(ATEN.add_.Tensor, (given[place], buffer), {"alpha": minus_rate})
    graph.recompile()
    return graph


def turned_beforehand(graph: fx.GraphModule, among: int) -> list[int]:
    """Replace transpositions of the first `among` inputs by further inputs, and return the sources' indices.

    A transposed view follows every change of its source, so that it is made only once.
    """
    nodes, given = graph.graph, _given_to(graph)
    turning = [
        node for node in nodes.nodes if node.target is ATEN.t.default and node.args[0] in given[:among]
    ]
    places = [given.index(node.args[0]) for node in turning]
    with nodes.inserting_before(given[-1].next):
        for place, node in zip(places, turning, strict=True):
            _replace(node, nodes.placeholder(f"turned_{place}"))
    graph.recompile()
    return places


def _given_to(graph: fx.GraphModule) -> list[fx.Node]:
    return [node for node in graph.graph.nodes if node.op == "placeholder"]


def _is_kept_axis(source: Any, *, dropped: fx.Node) -> bool:
    """Whether a sum keeps its axes only for a view without them."""
    if source.target is not ATEN.sum.dim_IntList or len(source.args) != 3 or len(source.users) != 1:
        return False
    summed, axes, _ = source.args
    shape = [size for axis, size in enumerate(summed.meta["val"].shape) if axis not in axes]
    return list(dropped.args[1]) == shape  # type: ignore[arg-type]


def _replace(node: fx.Node, other: fx.Node) -> None:
    node.replace_all_uses_with(other)
    node.graph.erase_node(node)


def _outputs(graph: fx.GraphModule) -> Sequence[fx.Node]:
    """The loss and the gradients of the parameters."""
    nodes: Sequence[fx.Node] = graph.graph.output_node().args[0]  # type: ignore[assignment]
    return nodes
