"""Rules of the operations that move, merge or remove axes."""

import math
from collections.abc import Callable

from torch.fx import Node

from edge_client.pruning.channel_graph.calls import Call, Extent, Signal, Value

Rule = Callable[[Call], Value]


def merge_axes(call: Call, start: int, end: int) -> Value:
    """Flatten axes `start` to `end`; leading channels then have several positions each."""
    signal, ndim = call.signal, len(call.shape)
    if signal is None:
        return call.give_up()
    start, end = start % ndim, end % ndim
    if end <= start or signal.axis < start:
        return signal
    if signal.axis > end:
        return Signal(signal.axis - (end - start), signal.segments)
    if signal.axis > start:
        return call.give_up()
    return _widened(signal, math.prod(call.shape[start + 1 : end + 1]))


def flatten(call: Call) -> Value:
    """`torch.flatten(x, start, end)`."""
    start, end = call.option(1, "start_dim", 0), call.option(2, "end_dim", -1)
    if isinstance(start, int) and isinstance(end, int):
        return merge_axes(call, start, end)
    return call.give_up()


def reshape(call: Call) -> Value:
    """`x.view(n, -1)` and `x.view(n, c, 1, 1)` with sizes from a shape; constants would become wrong."""
    signal, sizes = call.signal, call.listed(1, "shape")
    shape, result = call.shape, call.result_shape
    if signal is None or signal.axis != 1 or len(sizes) < 2 or result[:1] != shape[:1]:
        return call.give_up()
    others = (sizes[0], *sizes[2:])
    if result[1] % shape[1] or any(isinstance(size, Node) and call.values[size] for size in others):
        return call.give_up()
    width = call.values[sizes[1]] if isinstance(sizes[1], Node) else None
    if isinstance(width, Extent) and result[1] == shape[1]:
        call.ledger.unify(width.segments, signal.segments)
        return signal
    if sizes[1] == -1 and isinstance(sizes[0], Node):
        return _widened(signal, result[1] // shape[1])
    return call.give_up()


def squeeze(call: Call) -> Value:
    """`x.squeeze(axis)`; without an axis, a single remaining channel would be removed."""
    signal, ndim = call.signal, len(call.shape)
    axis = call.option(1, "dim")
    if signal is None or not isinstance(axis, int) or axis % ndim == signal.axis:
        return call.give_up()
    gone = len(call.result_shape) < ndim and axis % ndim < signal.axis
    return Signal(signal.axis - gone, signal.segments)


def unsqueeze(call: Call) -> Value:
    """`x.unsqueeze(axis)`."""
    signal, ndim = call.signal, len(call.shape)
    axis = call.option(1, "dim")
    if signal is None or not isinstance(axis, int):
        return call.give_up()
    return Signal(signal.axis + (axis % (ndim + 1) <= signal.axis), signal.segments)


def permute(call: Call) -> Value:
    """`x.permute(0, 2, 3, 1)`."""
    signal, ndim = call.signal, len(call.shape)
    order = [axis % ndim for axis in call.listed(1, "dims") if isinstance(axis, int)]
    if signal is None or len(order) != ndim:
        return call.give_up()
    return Signal(order.index(signal.axis), signal.segments)


def transpose(call: Call) -> Value:
    """`x.transpose(1, 2)`."""
    signal, ndim = call.signal, len(call.shape)
    first, second = call.option(1, "dim0"), call.option(2, "dim1")
    if signal is None or not isinstance(first, int) or not isinstance(second, int):
        return call.give_up()
    swap = {first % ndim: second % ndim, second % ndim: first % ndim}
    return Signal(swap.get(signal.axis, signal.axis), signal.segments)


def _widened(signal: Signal, factor: int) -> Signal:
    segments = (s.model_copy(update={"repeat": s.repeat * factor}) for s in signal.segments)
    return Signal(signal.axis, tuple(segments))
