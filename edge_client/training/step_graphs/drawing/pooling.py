"""Max pooling whose indices are those of ONNX, which count through the whole tensor.

torch counts through one map. The exporter converts one into the other by two more poolings, which take longer
than the pooling itself.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, library
from torch.nn import functional


@library.custom_op("edge_federation::max_pool", mutates_args=())
def max_pool(
    x: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> tuple[Tensor, Tensor]:
    """The largest values [B, C, h, w] of `x` [B, C, H, W], and their indices in the flattened `x`."""
    values, indices = functional.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode=ceil)
    maps = torch.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1, 1)
    return values, indices + maps * (x.shape[2] * x.shape[3])


@max_pool.register_fake
def _(
    x: Tensor, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int], ceil: bool
) -> Any:
    return functional.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil_mode=ceil)


def pooled(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil: bool = False,
) -> Any:
    """`aten.max_pool2d_with_indices` by `max_pool`."""
    return max_pool(x, _pair(kernel), _pair(stride or kernel), _pair(padding), _pair(dilation), ceil)


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
    """`aten.max_pool2d_with_indices_backward` for the indices of `max_pool`."""
    flat = torch.zeros_like(x).reshape(-1)
    return flat.scatter_add(0, indices.reshape(-1), gradient.reshape(-1)).reshape(x.shape)


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

    return opset18.MaxPool(
        x,
        kernel_shape=list(kernel),
        strides=list(stride),
        pads=[*padding, *padding],
        dilations=list(dilation),
        ceil_mode=int(ceil),
    )


def _pair(sizes: Sequence[int]) -> list[int]:
    return list(sizes) * (3 - len(sizes))
