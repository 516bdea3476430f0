"""Poolings in terms of ONNX's operators, with torch's gradients.

Max pooling takes onnxruntime twenty times as long with indices as without. Here it has none: the backward
pass compares the maxima with the inputs again, along one axis after the other (`_along`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import torch
from torch import Tensor, library
from torch.nn import functional

ROWS, COLUMNS = 2, 3  # axes of maps [B, C, H, W]
Sizes = int | Sequence[int]  # one number for each axis of a map, or one for both


@dataclass(frozen=True)
class StridedAxis:
    """An axis of `size` elements, `places` of which are those of the first window.

    It lies in `stride` parts, which have the same number of elements. Windows that are a stride apart read
    every stride-th element at each of their places: here these are a part of their own, in which another
    place is a shift, so that nothing is read in steps.
    """

    axis: int
    places: range
    stride: int
    size: int

    @property
    def length(self) -> int:
        return -(-self.size // self.stride)

    def largest(self, parts: Sequence[Tensor]) -> Tensor:
        """The maxima of as many windows as a part has elements."""
        return reduce(torch.maximum, [self._elements(parts, place, self.length) for place in self.places])

    def hits(self, parts: Sequence[Tensor], maxima: Tensor) -> list[Tensor | None]:
        """For each place, where its element of a window is the largest, as Booleans.

        None stands for the last place, where every window has its maximum that has it nowhere before.
        """
        count = maxima.shape[self.axis]
        is_in_all = self.places[-1] + self.stride * (count - 1) < self.size
        compared = self.places[:-1] if is_in_all else self.places
        found: list[Tensor | None] = [self._elements(parts, place, count) == maxima for place in compared]
        return [*found, None] if is_in_all else found

    def spread(self, gradient: Tensor, hits: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients of the parts from that of the maxima; of equal elements the first one has it."""
        left = gradient
        shares: list[list[Tensor]] = [[] for _ in range(self.stride)]
        for place, hit in zip(self.places, hits, strict=True):
            chosen = left
            if hit is not None:
                chosen = left * hit.to(left.dtype)
                left = left - chosen
            shift, part = divmod(place, self.stride)
            shares[part].append(shift_axis(chosen, self.axis, shift, self.length))
        return [
            reduce(torch.add, share)
            if share
            else shift_axis(torch.zeros_like(gradient), self.axis, 0, self.length)
            for share in shares
        ]

    def _elements(self, parts: Sequence[Tensor], place: int, count: int) -> Tensor:
        """The elements of `count` windows at one of their places."""
        shift, part = divmod(place, self.stride)
        return shift_axis(parts[part], self.axis, -shift, count, -math.inf)


def shift_axis(x: Tensor, axis: int, shift: int, size: int, number: float = 0) -> Tensor:
    """`x` [B, C, H, W] moved along an axis, which then has `size` elements, with `number` where it has none.

    onnxruntime pads the innermost axis alone fast, in long runs: rows are padded as places of flat maps. For
    columns, a product with a matrix of zeros and ones takes less than half the time.
    """
    batch, channels, height, width = x.shape
    after = size - x.shape[axis] - shift
    if shift == after == 0:
        return x
    if axis == ROWS:
        flat = functional.pad(x.flatten(2), (width * shift, width * after), value=number)
        return flat.reshape(batch, channels, size, width)
    columns = torch.arange(size) - shift
    moves = (torch.arange(width)[:, None] == columns).to(x.dtype)
    filling = torch.zeros_like(moves[0]).masked_fill((columns < 0) | (columns >= width), number)
    return torch.addmm(filling, x.reshape(-1, width), moves).reshape(batch, channels, height, size)


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

    def strided_axis(self, place: int, axis: int, size: int) -> StridedAxis:
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


def pool_windows(
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
    """`aten.max_pool2d_with_indices_backward` for the outputs of `pool_windows`.

    Of equal maxima the first one, row by row, has the gradient, as with torch: it is the first in its row,
    and its row is the first one that has the maximum.
    """
    windows = windows_of(kernel, stride, padding, dilation, ceil)
    in_rows = windows.within_rows().maxima(x)
    # Runtimes copy runs along the innermost axis: of a transposed map, columns are rows.
    down, across = (windows.strided_axis(place, ROWS, x.shape[2 + place]) for place in range(2))
    spread = _along(down, gradient, in_rows, windows.maxima(x))
    return _transpose_maps(
        _along(across, _transpose_maps(spread), _transpose_maps(x), _transpose_maps(in_rows))
    )


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


def _transpose_maps(x: Tensor) -> Tensor:
    return x.transpose(2, 3).contiguous()


def _along(axis: StridedAxis, gradient: Tensor, x: Tensor, maxima: Tensor) -> Tensor:
    """The gradient of `x` [B, C, H, W] from that of its maxima [B, C, h, W] over rows."""
    batch, channels, height, wide = x.shape
    rows = axis.stride * axis.length
    full = shift_axis(x, ROWS, 0, rows, -math.inf).reshape(batch, channels, axis.length, axis.stride * wide)
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
