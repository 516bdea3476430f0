"""The rule of each function and tensor method: its effect on the channel axis.

A rule gives up on calls that it does not cover: their channels are pinned.
"""

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import Node
from torch.nn import functional as F

from edge_client.pruning.channel_graph import attention, reshaping
from edge_client.pruning.channel_graph.calls import Call, Extent, Signal, Size, Value, shape_of
from schemas.submodel import Segment


def elementwise(call: Call) -> Value:
    """Elementwise operations with broadcasting: channels at the same position become one group."""
    operands = call.node.all_input_nodes
    tracked = [(node, value) for node in operands if isinstance(value := call.values[node], Signal)]
    offsets = {signal.axis - len(shape_of(node)) for node, signal in tracked}
    result = call.result_shape
    if not tracked or len(offsets) != 1 or not result or not _plain(call):
        return call.give_up()
    offset = offsets.pop()
    full = [signal for node, signal in tracked if shape_of(node)[offset] == result[offset]]
    thin = [signal for node, signal in tracked if shape_of(node)[offset] != result[offset]]
    others = [shape_of(node) for node in operands if call.values[node] is None]
    spread = any(len(shape) >= -offset and shape[offset] > 1 for shape in others)
    if not full or spread or len({signal.block for signal in full}) > 1:
        return call.give_up()
    for signal in thin:
        call.ledger.pin(signal.segments)
    for signal in full[1:]:
        if not call.ledger.unify(full[0].segments, signal.segments):
            call.stop()
    return replace(full[0], axis=len(result) + offset)


def spatial(dims: int) -> reshaping.Rule:
    """Pooling, padding and resizing over the last `dims` axes do not change channels."""

    def rule(call: Call) -> Value:
        signal, shape = call.signal, call.shape
        kept = signal and signal.axis < len(shape) - dims and len(call.result_shape) == len(shape)
        return signal if kept else call.give_up()

    return rule


def pad(call: Call) -> Value:
    """`F.pad`: two amounts for each of the last axes, which may not be the channels'."""
    signal, amounts = call.signal, call.list_argument(1, "pad")
    kept = signal and signal.axis < len(call.shape) - len(amounts) // 2
    return signal if kept else call.give_up()


def reduce(call: Call) -> Value:
    """Mean, sum or maximum over given axes other than the channel axis."""
    signal, ndim = call.signal, len(call.shape)
    dims = call.option(1, "dim")
    axes = dims if isinstance(dims, (tuple, list)) else (dims,)
    if signal is None or not call.result_shape or not all(isinstance(axis, int) for axis in axes):
        return call.give_up()
    gone = {axis % ndim for axis in axes if isinstance(axis, int)}
    if signal.axis in gone or not gone:
        return call.give_up()
    kept = len(call.result_shape) == ndim
    left = [axis for axis in range(ndim) if kept or axis not in gone]
    return signal.with_moved_axes({old: place for place, old in enumerate(left)})


def concatenate(call: Call) -> Value:
    """`torch.cat`: along the channel axis segments are concatenated, along another one unified."""
    parts, dim = call.option(0, "tensors"), call.option(1, "dim", 0)
    nodes = [part for part in parts if isinstance(part, Node)] if isinstance(parts, (tuple, list)) else []
    signals = [value for node in nodes if isinstance(value := call.values[node], Signal)]
    axes = {(signal.axis, signal.block) for signal in signals}
    if not isinstance(dim, int) or len(axes) != 1:
        return call.give_up()
    axis, block = axes.pop()
    if dim % len(call.result_shape) == axis:
        if block > 1:
            return call.give_up()
        return Signal(axis, tuple(segment for node in nodes for segment in _line(call, node, axis)))
    if len(signals) != len(nodes):
        return call.give_up()
    for signal in signals[1:]:
        call.ledger.unify(signals[0].segments, signal.segments)
    return signals[0]


def size(call: Call) -> Value:
    """`x.size()` and `x.size(axis)`, which may be the number of channels."""
    signal, axis = call.signal, call.option(1, "dim")
    if signal is None or axis is None:
        return None if signal is None else Size(signal, len(call.shape))
    if not isinstance(axis, int):
        return call.give_up()
    return _extent(signal) if axis % len(call.shape) == signal.axis else None


def attribute(call: Call) -> Value:
    """`x.shape`, and attributes without channels."""
    name = call.option(1, "name")
    if name == "shape":
        return None if call.signal is None else Size(call.signal, len(call.shape))
    return None if name in {"device", "dtype", "ndim"} else call.give_up()


def item(call: Call) -> Value:
    """`x.shape[1]`, and `x[:, :, -1]`: places of other axes than the channels'."""
    whole, index = call.values[call.source], call.option(1, "index")
    if isinstance(whole, Signal):
        return _places(call, whole, index if isinstance(index, tuple) else (index,))
    if isinstance(whole, Size) and isinstance(index, slice) and _is_plain(index):
        return call.give_up() if whole.signal.axis in range(whole.ndim)[index] else None
    if not isinstance(whole, Size) or not isinstance(index, int):
        return call.give_up()
    return _extent(whole.signal) if index % whole.ndim == whole.signal.axis else None


def _extent(signal: Signal) -> Extent | None:
    """The number of channels; None if none of them can be cut, as in an input."""
    grouped = any(segment.group for segment in signal.segments)
    return Extent(signal.segments, signal.block) if grouped else None


def _places(call: Call, signal: Signal, index: tuple[object, ...]) -> Value:
    """The channels of `x[index]`; numbers remove their axes."""
    known = all(isinstance(one, int | slice) and not isinstance(one, bool) for one in index)
    if not known or not (
        signal.axis >= len(index) or _takes_all(index[signal.axis], call.shape[signal.axis])
    ):
        return call.give_up()
    left = [axis for axis in range(len(call.shape)) if axis >= len(index) or not isinstance(index[axis], int)]
    return signal.with_moved_axes({old: place for place, old in enumerate(left)})


def _takes_all(index: object, length: int) -> bool:
    """Whether a slice has all places of an axis, and would have them of a shorter one."""
    if not isinstance(index, slice) or index.start not in (None, 0) or index.step not in (None, 1):
        return False
    return index.stop is None or (isinstance(index.stop, int) and index.stop >= length)


def _is_plain(index: slice) -> bool:
    return not any(isinstance(each, Node) for each in (index.start, index.stop, index.step))


def _plain(call: Call) -> bool:
    """Whether no argument depends on the number of channels."""
    values = (call.values[node] for node in call.node.all_input_nodes)
    return not any(isinstance(value, (Size, Extent)) for value in values)


def _line(call: Call, node: Node, axis: int) -> tuple[Segment, ...]:
    value = call.values[node]
    return value.segments if isinstance(value, Signal) else (Segment(channels=shape_of(node)[axis]),)


FUNCTIONS: dict[Callable[..., Any], reshaping.Rule] = {
    torch.flatten: reshaping.flatten, torch.unflatten: reshaping.unflatten,
    torch.reshape: reshaping.reshape,
    torch.mean: reduce, torch.sum: reduce, torch.amax: reduce,
    torch.squeeze: reshaping.squeeze, torch.unsqueeze: reshaping.unsqueeze,
    torch.permute: reshaping.permute, torch.transpose: reshaping.transpose,
    torch.cat: concatenate,
    torch.matmul: attention.product, torch.bmm: attention.product, operator.matmul: attention.product,
    F.scaled_dot_product_attention: attention.scaled_dot_product,
    torch.softmax: attention.softmax, F.softmax: attention.softmax,
    getattr: attribute,
    operator.getitem: item,
    F.max_pool1d: spatial(1), F.max_pool2d: spatial(2), F.max_pool3d: spatial(3),
    F.avg_pool1d: spatial(1), F.avg_pool2d: spatial(2), F.avg_pool3d: spatial(3),
    F.adaptive_avg_pool1d: spatial(1), F.adaptive_avg_pool2d: spatial(2),
    F.adaptive_max_pool1d: spatial(1), F.adaptive_max_pool2d: spatial(2),
    F.interpolate: spatial(1),
    F.pad: pad,
    **dict.fromkeys(
        (F.relu, F.relu6, F.leaky_relu, F.elu, F.selu, F.gelu, F.silu, F.mish, F.hardswish, F.hardsigmoid,
         F.hardtanh, F.softplus, F.sigmoid, F.tanh, F.dropout, F.dropout2d, torch.relu, torch.sigmoid,
         torch.tanh, torch.abs, torch.square, torch.clamp, torch.add, torch.sub, torch.mul, torch.div,
         torch.maximum, torch.minimum, operator.add, operator.sub, operator.mul, operator.truediv,
         operator.neg, operator.iadd, operator.isub, operator.imul, operator.itruediv),
        elementwise,
    ),
}  # fmt: skip

METHODS: dict[str, reshaping.Rule] = {
    "flatten": reshaping.flatten, "unflatten": reshaping.unflatten,
    "view": reshaping.reshape, "reshape": reshaping.reshape,
    "mean": reduce, "sum": reduce, "amax": reduce,
    "squeeze": reshaping.squeeze, "unsqueeze": reshaping.unsqueeze,
    "permute": reshaping.permute, "transpose": reshaping.transpose,
    "matmul": attention.product, "bmm": attention.product,
    "softmax": attention.softmax,
    "size": size,
    **dict.fromkeys(
        ("relu", "relu_", "sigmoid", "sigmoid_", "tanh", "tanh_", "abs", "square", "clamp", "clamp_", "neg",
         "add", "add_", "sub", "sub_", "mul", "mul_", "div", "div_", "expand_as", "contiguous", "clone",
         "detach", "float", "to"),
        elementwise,
    ),
}  # fmt: skip

LIBRARY_FUNCTIONS: dict[str, reshaping.Rule] = {
    # Examples are dropped as a whole.
    "torchvision.ops.stochastic_depth.stochastic_depth": elementwise,
}


def rule_of_function(function: Callable[..., Any]) -> reshaping.Rule | None:
    """The rule of a function, one of a library by its name; None for an unknown one."""
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    return FUNCTIONS.get(function) or LIBRARY_FUNCTIONS.get(name)
