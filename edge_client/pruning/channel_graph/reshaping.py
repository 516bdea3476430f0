"""Rules of the operations that move, merge, split or remove axes."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from torch.fx import Node

from edge_client.pruning.channel_graph.calls import Call, Extent, Signal, Value

Rule = Callable[[Call], Value]


def merge_axes(call: Call, start: int, end: int) -> Value:
    """Flatten axes `start` to `end`; leading channels then have several positions each."""
    signal, ndim = call.signal, len(call.shape)
    if signal is None:
        return call.give_up()
    start, end = start % ndim, end % ndim
    if start < signal.axis <= end:
        return call.give_up()
    if signal.axis == start < end:
        return _merge_axes(call, signal, start, math.prod(call.shape[start + 1 : end + 1]))
    return signal.with_moved_axes(_left_over(ndim, range(start + 1, end + 1)))


def flatten(call: Call) -> Value:
    """`torch.flatten(x, start, end)`."""
    start, end = call.option(1, "start_dim", 0), call.option(2, "end_dim", -1)
    if isinstance(start, int) and isinstance(end, int):
        return merge_axes(call, start, end)
    return call.give_up()


def unflatten(call: Call) -> Value:
    """`x.unflatten(axis, (-1, d))`: blocks of d channels, where their number is left open."""
    signal, axis, sizes = call.signal, call.option(1, "dim"), call.option(2, "sizes")
    if signal is None or not isinstance(axis, int) or not isinstance(sizes, (tuple, list)):
        return call.give_up()
    axis, further = axis % len(call.shape), len(sizes) - 1
    if axis == signal.axis:
        parts = call.result_shape[axis + 1 : axis + 1 + further]
        return _split(call, signal, axis, parts) if sizes[0] == -1 else call.give_up()
    places = {old: old + further * (old > axis) for old in range(len(call.shape)) if old != axis}
    return signal.with_moved_axes(places)


def reshape(call: Call) -> Value:
    """`x.view(n, -1)`, `x.view(n, c, 1, 1)` and `x.view(n, t, -1, d)`, with -1 or a size from a shape.

    The axis of the channels stays, is merged with axes behind it, or is split into blocks; what lies before
    and behind is reshaped by itself. Constants in place of the number of channels would become wrong.
    """
    signal, sizes = call.signal, call.list_argument(1, "shape")
    shape, result = call.shape, call.result_shape
    if signal is None or len(sizes) != len(result):
        return call.give_up()
    axis = _place(shape, result, signal.axis)
    others = [size for place, size in enumerate(sizes) if place != axis]
    if axis is None or any(isinstance(size, Node) and call.values[size] for size in others):
        return call.give_up()
    size = sizes[axis]
    width = call.values[size] if isinstance(size, Node) else None
    if isinstance(width, Extent) and result[axis] == shape[signal.axis] and width.block == signal.block:
        call.ledger.unify(width.segments, signal.segments)
        return replace(signal, axis=axis, inner=None)
    return _resize_axis(call, signal, axis) if size == -1 else call.give_up()


def squeeze(call: Call) -> Value:
    """`x.squeeze(axis)`; without an axis, a single remaining channel would be removed."""
    signal, axis, ndim = call.signal, call.option(1, "dim"), len(call.shape)
    if signal is None or not isinstance(axis, int) or axis % ndim == signal.axis:
        return call.give_up()
    gone = [axis % ndim] if len(call.result_shape) < ndim else []
    return signal.with_moved_axes(_left_over(ndim, gone))


def unsqueeze(call: Call) -> Value:
    """`x.unsqueeze(axis)`."""
    signal, axis, ndim = call.signal, call.option(1, "dim"), len(call.shape)
    if signal is None or not isinstance(axis, int):
        return call.give_up()
    return signal.with_moved_axes({old: old + (axis % (ndim + 1) <= old) for old in range(ndim)})


def permute(call: Call) -> Value:
    """`x.permute(0, 2, 3, 1)`."""
    signal, ndim = call.signal, len(call.shape)
    order = [axis % ndim for axis in call.list_argument(1, "dims") if isinstance(axis, int)]
    if signal is None or len(order) != ndim:
        return call.give_up()
    return signal.with_moved_axes({old: place for place, old in enumerate(order)})


def transpose(call: Call) -> Value:
    """`x.transpose(1, 2)`."""
    signal, ndim = call.signal, len(call.shape)
    first, second = call.option(1, "dim0"), call.option(2, "dim1")
    if signal is None or not isinstance(first, int) or not isinstance(second, int):
        return call.give_up()
    swap = {first % ndim: second % ndim, second % ndim: first % ndim}
    return signal.with_moved_axes({old: swap.get(old, old) for old in range(ndim)})


def _left_over(ndim: int, gone: Sequence[int]) -> dict[int, int]:
    """The new places of the axes that are left."""
    left = [axis for axis in range(ndim) if axis not in gone]
    return {old: place for place, old in enumerate(left)}


def _place(shape: Sequence[int], result: Sequence[int], axis: int) -> int | None:
    """The axis of a result that begins where `axis` of `shape` does; None if none does."""
    before = math.prod(shape[:axis])
    places = [place for place in range(len(result)) if math.prod(result[:place]) == before]
    # Axes of one place may stand before it.
    return next((place for place in places if result[place] > 1), places[0] if places else None)


def _resize_axis(call: Call, signal: Signal, axis: int) -> Value:
    """The channels on an axis of another length: merged with what follows, split, or as they are."""
    before, after = call.shape[signal.axis], call.result_shape[axis]
    if after % before == 0:
        return _merge_axes(call, signal, axis, after // before)
    ends = range(axis + 2, len(call.result_shape) + 1)
    parts = [call.result_shape[axis + 1 : end] for end in ends]
    fitting = [part for part in parts if after * math.prod(part) == before]
    return _split(call, signal, axis, fitting[0]) if fitting else call.give_up()


def _merge_axes(call: Call, signal: Signal, axis: int, factor: int) -> Value:
    """Each place of the channels' axis becomes `factor` places."""
    if signal.block % factor == 0:
        return Signal(axis, signal.segments, signal.block // factor)
    if factor % signal.block:
        return call.give_up()
    further = factor // signal.block
    segments = (s.model_copy(update={"repeat": s.repeat * further}) for s in signal.segments)
    return Signal(axis, tuple(segments))


def _split(call: Call, signal: Signal, axis: int, parts: Sequence[int]) -> Value:
    """The channels' axis becomes blocks of as many places as the axes of lengths `parts` have."""
    width = signal.block * math.prod(parts)
    if all(segment.repeat % width == 0 for segment in signal.segments):
        segments = (s.model_copy(update={"repeat": s.repeat // width}) for s in signal.segments)
        return Signal(axis, tuple(segments))
    call.ledger.keep_blocks(signal.segments, width)
    return Signal(axis, signal.segments, width, axis + 1 if len(parts) == 1 else None)
