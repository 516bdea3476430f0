"""Poolings in terms of ONNX's operators, with torch's gradients.

Max pooling takes onnxruntime twenty times as long with indices as without. Here it has none: the backward
pass compares the maxima with the inputs again, along one axis after the other (`_along`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, library
from torch.nn import functional

from edge_client.training.step_graphs.drawing.strided_axis import ROWS, StridedAxis, moved

Sizes = int | Sequence[int]  # one number for each axis of a map, or one for both


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
        found: Tensor = max_pool(x, *self._sizes, self.ceil)
        return found

    def pooled_by_torch(self, x: Tensor) -> Tensor:
        """The same with torch's operator, which has gradients."""
        return functional.max_pool2d(x, *self._sizes, ceil_mode=self.ceil)

    @property
    def _sizes(self) -> tuple[list[int], list[int], list[int], list[int]]:
        return list(self.kernel), list(self.stride), list(self.padding), list(self.dilation)

    def strided(self, place: int, axis: int, size: int) -> StridedAxis:
        """The windows' first (0) or second (1) axis, as an axis of maps with `size` elements."""
        step, before = self.dilation[place], self.padding[place]
        places = range(-before, self.kernel[place] * step - before, step)
        return StridedAxis(axis, places, self.stride[place], size)

    def counts(self, sizes: Sequence[int]) -> list[int]:
        """How many windows maps of these sizes [H, W] have along both axes."""
        return [*self.maxima(torch.empty(1, 1, *sizes, device="meta")).shape[2:]]

    def within_rows(self) -> "Windows":
        kernel, stride, padding, dilation = (sizes[1] for sizes in self._sizes)
        return Windows((1, kernel), (1, stride), (0, padding), (1, dilation), self.ceil)


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
    values = windows_of(kernel, stride, padding, dilation, ceil).maxima(x)
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
    windows = windows_of(kernel, stride, padding, dilation, ceil)
    in_rows = windows.within_rows().maxima(x)
    # Runtimes copy runs along the innermost axis: of a transposed map, columns are rows.
    down, across = (windows.strided(place, ROWS, x.shape[2 + place]) for place in range(2))
    spread = _along(down, gradient, in_rows, windows.maxima(x))
    return _flipped(_along(across, _flipped(spread), _flipped(x), _flipped(in_rows)))


def windows_of(
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Windows:
    """The windows of a pooling with torch's arguments after its inputs."""
    return Windows(pair(kernel_size), pair(stride or kernel_size), pair(padding), pair(dilation), ceil_mode)


def _flipped(x: Tensor) -> Tensor:
    return x.transpose(2, 3).contiguous()


def _along(axis: StridedAxis, gradient: Tensor, x: Tensor, maxima: Tensor) -> Tensor:
    """The gradient of `x` [B, C, H, W] from that of its maxima [B, C, h, W] over rows."""
    batch, channels, height, wide = x.shape
    rows = axis.stride * axis.length
    full = moved(x, ROWS, 0, rows, -math.inf).reshape(batch, channels, axis.length, axis.stride * wide)
    parts = [full[..., part * wide : (part + 1) * wide] for part in range(axis.stride)]
    found = torch.cat(axis.spread(gradient, axis.hits(parts, maxima)), 3)
    return found.reshape(batch, channels, rows, wide)[:, :, :height]


def onnx_max_pool(
    x: Any,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil: bool,
) -> Any:
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


def pair(sizes: Sizes) -> list[int]:
    given = [sizes] if isinstance(sizes, int) else list(sizes)
    return given * (3 - len(given))
