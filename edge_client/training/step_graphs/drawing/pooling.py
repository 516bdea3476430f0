"""Poolings in terms of ONNX's operators, with torch's gradients.

Windows of max pooling that tile a map need no indices, which take onnxruntime ten times as long as the
maxima: the gradient goes to the first element that equals the maximum (`_tiled_backward`). Other windows
have indices as ONNX counts them, through the whole tensor; torch counts through one map, and the exporter
converts one into the other by two more poolings.
"""

from collections.abc import Callable, Mapping, Sequence
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


@library.custom_op("edge_federation::tile_max", mutates_args=())
def tile_max(x: Tensor, kernel: list[int]) -> Tensor:
    """The largest values [B, C, H/h, W/w], rounded down, of the tiles [h, w] of `x` [B, C, H, W]."""
    return functional.max_pool2d(x, kernel)


@tile_max.register_fake
def _(x: Tensor, kernel: list[int]) -> Tensor:
    return functional.max_pool2d(x, kernel)


@library.custom_op("edge_federation::enlarge", mutates_args=())
def enlarge(x: Tensor, kernel: list[int]) -> Tensor:
    """Tiles [h, w] of the values of `x` [B, C, H, W]."""
    return x.repeat_interleave(kernel[0], dim=2).repeat_interleave(kernel[1], dim=3)


@enlarge.register_fake
def _(x: Tensor, kernel: list[int]) -> Tensor:
    return x.new_empty(*x.shape[:2], x.shape[2] * kernel[0], x.shape[3] * kernel[1])


def pooled(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0, 0),
    dilation: Sequence[int] = (1, 1),
    ceil: bool = False,
) -> Any:
    """`aten.max_pool2d_with_indices` by `max_pool`, or by `tile_max` without indices."""
    if _tiles(kernel, stride, padding, dilation, ceil):
        values = tile_max(x, _pair(kernel))
        return values, torch.zeros_like(values, dtype=torch.int64)
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
    """`aten.max_pool2d_with_indices_backward` for the outputs of `pooled`."""
    if _tiles(kernel, stride, padding, dilation, ceil):
        return _tiled_backward(gradient, x, _pair(kernel))
    flat = torch.zeros_like(x).reshape(-1)
    return flat.scatter_add(0, indices.reshape(-1), gradient.reshape(-1)).reshape(x.shape)


def _tiles(
    kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], dilation: Sequence[int], ceil: bool
) -> bool:
    """Whether the windows neither overlap nor leave the map."""
    tight = _pair(stride or kernel) == _pair(kernel) and _pair(dilation) == [1, 1]
    return tight and not any(padding) and not ceil


def _tiled_backward(gradient: Tensor, x: Tensor, kernel: list[int]) -> Tensor:
    """The gradient of `tile_max`; of equal maxima the first one, row by row, has it, as with torch."""
    high, wide = kernel
    rows, columns = gradient.shape[2] * high, gradient.shape[3] * wide
    covered = x[:, :, :rows, :columns]
    ranks = torch.arange(high * wide, 0, -1, dtype=x.dtype).reshape(high, wide)
    ranked = (covered == enlarge(tile_max(x, kernel), kernel)).to(x.dtype) * ranks.repeat(*gradient.shape[2:])
    first = ranked == enlarge(tile_max(ranked, kernel), kernel)
    spread = first.to(x.dtype) * enlarge(gradient, kernel)
    missing = (0, x.shape[3] - columns, 0, x.shape[2] - rows)
    return functional.pad(spread, missing) if any(missing) else spread


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


def onnx_tile_max(x: Any, kernel: Sequence[int]) -> Any:
    """The ONNX operator of `tile_max`."""
    from onnxscript import opset18

    # The second output, the indices, is not computed if nothing reads it.
    return opset18.MaxPool(x, kernel_shape=list(kernel), strides=list(kernel))[0]


def onnx_enlarge(x: Any, kernel: Sequence[int]) -> Any:
    """The ONNX operator of `enlarge`."""
    from onnxscript import opset18

    scales: Any = opset18.Constant(value_floats=[1.0, 1.0, *map(float, kernel)])
    return opset18.Resize(
        x, None, scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def _pair(sizes: Sequence[int]) -> list[int]:
    return list(sizes) * (3 - len(sizes))


TRANSLATIONS: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.ops.edge_federation.max_pool.default: onnx_max_pool,
    torch.ops.edge_federation.tile_max.default: onnx_tile_max,
    torch.ops.edge_federation.enlarge.default: onnx_enlarge,
}
"""The ONNX operator of each operator that this module adds to torch."""
