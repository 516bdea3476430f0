"""Poolings in terms of ONNX's operators, with torch's gradients.

Max pooling takes onnxruntime twenty times as long with indices as without. Here it has none: the backward
pass compares the maxima with the inputs again, along one axis after the other (`_along`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, library
from torch.nn import functional


@dataclass(frozen=True)
class Windows:
    """The windows of a pooling along each axis of a map; with `ceil` the last one may lack elements."""

    kernel: Sequence[int]
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    ceil: bool

    def maxima(self, x: Tensor) -> Tensor:
        """The largest values [B, C, h, w] of `x` [B, C, H, W]."""
        sizes = (self.kernel, self.stride, self.padding, self.dilation)
        found: Tensor = max_pool(x, *map(list, sizes), self.ceil)
        return found

    def within_rows(self) -> "Windows":
        """The windows of one row each."""
        return Windows(
            kernel=(1, self.kernel[1]),
            stride=(1, self.stride[1]),
            padding=(0, self.padding[1]),
            dilation=(1, self.dilation[1]),
            ceil=self.ceil,
        )


@library.custom_op("edge_federation::max_pool", mutates_args=())
def max_pool(
    x: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> Tensor:
    """The largest values [B, C, h, w] of `x` [B, C, H, W]."""
    return functional.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode=ceil)


@max_pool.register_fake
def _(
    x: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> Tensor:
    return functional.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode=ceil)


def pooled(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil: bool = False,
) -> Any:
    """`aten.max_pool2d_with_indices`, with zeros instead of the indices."""
    values = _windows(kernel, stride, padding, dilation, ceil).maxima(x)
    return values, torch.zeros_like(values, dtype=torch.int64)


def pooled_backward(
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
    indices: Tensor,
) -> Tensor:
    """`aten.max_pool2d_with_indices_backward` for the outputs of `pooled`.

    Of equal maxima the first one, row by row, has the gradient, as with torch: it is the first in its row,
    and its row is the first one that has the maximum.
    """
    windows = _windows(kernel, stride, padding, dilation, ceil)
    in_rows = windows.within_rows().maxima(x)
    spread = _along(0, gradient, in_rows, windows.maxima(x), windows)
    # Runtimes copy runs along the innermost axis: of a transposed map, columns are rows.
    return _flipped(_along(1, _flipped(spread), _flipped(x), _flipped(in_rows), windows))


def _windows(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], ceil: bool
) -> Windows:
    return Windows(_pair(kernel), _pair(stride or kernel), _pair(padding), _pair(dilation), ceil)


def _flipped(x: Tensor) -> Tensor:
    return x.transpose(2, 3).contiguous()


def _along(axis: int, gradient: Tensor, x: Tensor, maxima: Tensor, windows: Windows) -> Tensor:
    """The gradient of `x` [B, C, H, W] from that of its maxima [B, C, h, W] over rows.

    The first of equal elements has it. `axis` is that of the windows whose sizes count. A window's row at one
    place is a row of `x` that is `stride` rows further for each window: every `stride`-th row of `x` is in
    one part, and places in the same part differ by a shift.
    """
    stride, padding, dilation = windows.stride[axis], windows.padding[axis], windows.dilation[axis]
    (height, wide), count = x.shape[2:], maxima.shape[2]
    rows = -(-height // stride)
    full = _padded(x, 0, stride * rows - height, -math.inf)
    full = full.reshape(x.shape[0], x.shape[1], rows, stride * wide)
    left = gradient
    shares: list[list[Tensor]] = [[] for _ in range(stride)]
    places = range(-padding, windows.kernel[axis] * dilation - padding, dilation)
    for place in places:
        shift, part = divmod(place, stride)
        before, after = -shift, count + shift - rows
        chosen = left
        if place < places[-1] or place + stride * (count - 1) >= height:
            elements = full[..., part * wide : (part + 1) * wide]
            chosen = left * (_padded(elements, before, after, -math.inf) == maxima).to(x.dtype)
            left = left - chosen
        shares[part].append(_padded(chosen, -before, -after, 0))
    found = [sum(share[1:], share[0]) if share else torch.zeros_like(full[..., :wide]) for share in shares]
    return torch.cat(found, 3).reshape(x.shape[0], x.shape[1], stride * rows, wide)[:, :, :height]


def _padded(x: Tensor, before: int, after: int, number: float) -> Tensor:
    """`x` with more rows, or fewer if negative, before and after its rows [..., H, W]."""
    return functional.pad(x, (0, 0, before, after), value=number) if before or after else x


def averaged_backward(
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """`aten.avg_pool2d_backward`: every output spreads its gradient evenly over its window.

    Raises `NotImplementedError` where windows have different divisors.
    """
    if ceil or (any(padding) and not count_include_pad):
        raise NotImplementedError("average pooling with windows of different sizes")
    sizes, steps, borders = _pair(kernel), _pair(stride or kernel), _pair(padding)
    channels = x.shape[1]
    even = torch.full((channels, 1, *sizes), 1 / (divisor or sizes[0] * sizes[1]), dtype=x.dtype)
    missing = [
        x.shape[2 + axis] - ((gradient.shape[2 + axis] - 1) * steps[axis] - 2 * borders[axis] + sizes[axis])
        for axis in range(2)
    ]
    spread: Tensor = torch.ops.aten.convolution(
        gradient, even, None, steps, borders, [1, 1], True, missing, channels
    )
    return spread


def onnx_max_pool(
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> Any:
    """The ONNX operator of `max_pool`."""
    from onnxscript import opset18

    # The second output, the indices, is not computed if nothing reads it.
    return opset18.MaxPool(
        x,
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=[*padding, *padding],
        dilations=list(dilation),
        ceil_mode=int(ceil),
    )[0]


def _pair(sizes: Sequence[int]) -> list[int]:
    return list(sizes) * (3 - len(sizes))


TRANSLATIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.edge_federation.max_pool.default: onnx_max_pool,
}
"""The ONNX operator of the operator that this module adds to torch."""
