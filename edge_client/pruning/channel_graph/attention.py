"""Rules of attention: products of tensors, and what normalises their scores.

Heads are blocks of channels: queries and keys [B, heads, T, d] give a score per head and pair of tokens, with
which the values of the same head are summed. A head is therefore kept or cut as a whole, in the queries, keys
and values and in what reads them. Queries and keys only weigh values, and are no `layers` of their group: to
scale or gate their channels would change how sharply a head attends.
"""

from dataclasses import dataclass, replace

from torch.fx import Node

from edge_client.pruning.channel_graph.calls import Call, Signal, Value, shape_of


@dataclass(frozen=True)
class _Operand:
    """A tensor with channels; axes are counted from its end, since leading ones may be missing."""

    signal: Signal
    ndim: int

    @property
    def axis(self) -> int:
        return self.signal.axis - self.ndim

    @property
    def inner(self) -> int | None:
        return None if self.signal.inner is None else self.signal.inner - self.ndim


def product(call: Call) -> Value:
    """`a @ b` of [..., i, k] and [..., k, j]: channels on a leading axis, on k, or on one of i and j."""
    nodes = [each for each in (*call.node.args, *call.node.kwargs.values()) if isinstance(each, Node)]
    if len(nodes) != 2 or any(len(shape_of(node)) < 2 for node in nodes):
        return call.give_up()
    left, right = (_operand(call, node) for node in nodes)
    if left is None or right is None:
        return _passed_on(call, left, nodes[1], rows=-2) or _passed_on(call, right, nodes[0], rows=-1)
    if left.signal.block != right.signal.block:
        return call.give_up()
    if (left.axis, right.axis) == (-1, -2):
        call.ledger.unify(left.signal.segments, right.signal.segments)
        return None
    return _per_head(call, left, right)


def scaled_dot_product(call: Call) -> Value:
    """`F.scaled_dot_product_attention(q, k, v)` of heads [B, heads, T, d], with one mask for all heads."""
    nodes = call.node.all_input_nodes
    operands = [_operand(call, node) for node in nodes]
    heads = [operand for operand in operands[:3] if operand is not None]
    kinds = {(operand.axis, operand.signal.block) for operand in heads}
    axis = heads[0].axis if heads else 0
    masks = zip(operands[3:], nodes[3:], strict=True)
    shared = all(mask is None and _is_shared(node, axis) for mask, node in masks)
    # Otherwise the width of a head, by whose root scores are divided, would depend on the channels.
    if len(heads) != 3 or len(kinds) != 1 or axis >= -2 or not shared:
        return call.give_up()
    for operand in heads[:2]:
        call.ledger.only_weigh(operand.signal.segments)
        call.ledger.unify(operand.signal.segments, heads[2].signal.segments)
    return heads[2].signal


def softmax(call: Call) -> Value:
    """`x.softmax(axis)`, `torch.softmax(x, axis)` and `F.softmax(x, axis)`."""
    return normalised_along(call, call.option(1, "dim"))


def normalised_along(call: Call, axis: object) -> Value:
    """Numbers are divided by their sum along an axis, which may not be that of the channels."""
    signal = call.signal
    if signal is None or not isinstance(axis, int) or axis % len(call.shape) == signal.axis:
        return call.give_up()
    return signal


def _per_head(call: Call, left: _Operand, right: _Operand) -> Value:
    """A product for each place of a leading axis that both operands have."""
    if left.axis != right.axis or left.axis >= -2:
        return call.give_up()
    if (left.inner, right.inner) == (-1, -2):
        for operand in (left, right):
            call.ledger.only_weigh(operand.signal.segments)
    call.ledger.unify(left.signal.segments, right.signal.segments)
    inner = -1 if right.inner == -1 else -2 if left.inner == -2 else None
    return _result(call, left.signal, left.axis, inner)


def _passed_on(call: Call, operand: _Operand | None, other: Node, *, rows: int) -> Value:
    """The channels of one operand: on its own axis `rows`, or on a leading axis that the other lacks."""
    if operand is None:
        return None
    if operand.axis != rows and not (operand.axis < -2 and _is_shared(other, operand.axis)):
        return call.give_up()
    return _result(call, operand.signal, operand.axis, None)


def _result(call: Call, signal: Signal, axis: int, inner: int | None) -> Signal:
    ndim = len(call.result_shape)
    return replace(signal, axis=ndim + axis, inner=None if inner is None else ndim + inner)


def _operand(call: Call, node: Node) -> _Operand | None:
    value = call.values[node]
    return _Operand(value, len(shape_of(node))) if isinstance(value, Signal) else None


def _is_shared(node: Node, axis: int) -> bool:
    """Whether a tensor is the same for all places of an axis, which is counted from the end."""
    shape = shape_of(node)
    return len(shape) < -axis or shape[axis] == 1
