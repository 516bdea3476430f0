"""Maximum poolings of a network as its step graph has them.

The pooling of a ReLU's outputs is the ReLU of the pooled inputs: the largest number of a window is the same
either way, and so are its place and its gradient. The ReLU then has a quarter of the numbers, in both passes.
The pooling of a convolution's outputs, with or without a ReLU between them, is one of phases where that pays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edge_client.training.step_graphs.drawing import pooling
from edge_client.training.step_graphs.drawing.frequencies import Geometry, is_faster

CONVOLUTIONS = (functional.conv2d, torch.conv2d)
RELUS = (torch.relu, Tensor.relu, functional.relu)
POOLINGS = (functional.max_pool2d, torch.max_pool2d)


class DrawnPools(TorchFunctionMode):
    """Within it a network computes its poolings so; its numbers and gradients stay the same."""

    def __init__(self) -> None:
        super().__init__()
        self._relus: list[tuple[Tensor, Tensor]] = []
        self._convolved: list[tuple[Tensor, Convolution]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func in POOLINGS and args and not options.get("return_indices"):
            return self._pool_maps(args[0], pooling.windows_of(*args[1:], **options))
        result = func(*args, **options)
        if func in RELUS and args and result is not args[0]:
            self._relus.append((result, args[0]))
        if func in CONVOLUTIONS and args:
            self._convolved.append((result, Convolution(*args, **options)))
        return result

    def _pool_maps(self, maps: Tensor, windows: pooling.Windows) -> Tensor:
        for outputs, inputs in self._relus:
            if outputs is maps:
                return torch.relu(self._pool_maps(inputs, windows))
        for outputs, convolution in self._convolved:
            if outputs is maps and convolution.suits(windows):
                return convolution.pool_outputs(windows)
        return windows.pooled_by_torch(maps)


# Convolutions whose outputs are pooled, drawn in phases: as many as the pooling has strides.
#
# The windows of a pooling with stride 2 read even and odd rows and columns at different places. A convolution
# can compute these four phases apart: each is a set of outputs of its own, from inputs that are in phases
# too, with the kernel moved by a place. Pooling and its backward pass then read and write nothing in steps.
# The maps that are convolved have a quarter of the places, for each of which a runtime copies a window of the
# inputs. The kernel has zeros around its numbers, which are multiplied too.

MAX_MULTIPLICATIONS = 1.5  # how many times as many multiplications pay for what need not be moved


@dataclass(frozen=True)
class KernelAxis:
    """An axis of a kernel with `kernel` places, the output's in the middle, and the pooling's `stride`."""

    kernel: int
    stride: int

    @property
    def border(self) -> int:
        """The places of a phase that the kernel reaches on each side of the output's."""
        return -(-(self.kernel // 2) // self.stride)

    @property
    def size(self) -> int:
        """The places of the kernel of a phase in another one."""
        return 2 * self.border + 1

    @property
    def length(self) -> int:
        """The places of the kernel of a phase in all of them."""
        return self.stride * self.size

    def zeros(self, phase: int) -> tuple[int, int]:
        """The zeros before and after the kernel of a phase of the outputs."""
        before = phase - self.kernel // 2 + self.stride * self.border
        return before, self.length - self.kernel - before


@dataclass(frozen=True, eq=False)
class Convolution:
    """The arguments of a convolution of `inputs` [B, Ci, H, W] with `weight` [Co, Ci, h, w]."""

    inputs: Tensor
    weight: Tensor
    bias: Tensor | None = None
    stride: pooling.Sizes = 1
    padding: pooling.Sizes | str = 0
    dilation: pooling.Sizes = 1
    groups: int = 1

    def suits(self, windows: pooling.Windows) -> bool:
        """Whether it is drawn in the phases of these windows.

        Its outputs are as large as its inputs, of which the phases are equal parts.
        """
        if isinstance(self.padding, str) or self.inputs.dim() != 4:
            return False
        maps, kernel = self.inputs.shape, self.weight.shape
        stride, padding, dilation = (
            pooling.pair(sizes) for sizes in (self.stride, self.padding, self.dilation)
        )
        down, across = self._axes(windows)
        pooled = [size / step for size, step in zip(maps[2:], windows.stride, strict=True)]
        return (
            {*stride, *dilation, self.groups} == {1}
            and [2 * border + 1 for border in padding] == [*kernel[2:]]
            and windows.counts(maps[2:]) == pooled
            and down.length * across.length <= MAX_MULTIPLICATIONS * kernel[2] * kernel[3]
            and not is_faster(maps, kernel, Geometry(stride, padding, dilation, self.groups))
        )

    def pool_outputs(self, windows: pooling.Windows) -> Tensor:
        """The maxima [B, Co, h, w] of the outputs."""
        down, across = self._axes(windows)
        bias = None if self.bias is None else self.bias.repeat(down.stride * across.stride)
        phases = functional.conv2d(
            _in_phases(self.inputs, down.stride, across.stride),
            _kernel_of_phases(self.weight, down, across),
            bias,
            padding=(down.border, across.border),
        )
        found: Tensor = PooledPhases.apply(phases, windows)  # type: ignore[no-untyped-call]
        return found

    def _axes(self, windows: pooling.Windows) -> tuple[KernelAxis, KernelAxis]:
        down, across = (
            KernelAxis(*sizes) for sizes in zip(self.weight.shape[2:], windows.stride, strict=True)
        )
        return down, across


class PooledPhases(torch.autograd.Function):
    """The maxima [B, C, h, w] of a map in phases [B, columns' phases * rows' phases * C, h, w].

    What the backward pass needs are Booleans, which take a quarter of the memory of the numbers.
    """

    @staticmethod
    def forward(context: Any, phases: Tensor, windows: pooling.Windows) -> Tensor:
        down, across = _strided_axes(phases, windows)
        columns = phases.chunk(across.stride, 1)
        in_rows = across.largest(columns)
        rows = in_rows.chunk(down.stride, 1)
        maxima = down.largest(rows)
        context.save_for_backward(*across.hits(columns, in_rows), *down.hits(rows, maxima))
        context.windows = windows
        return maxima

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        down, across = _strided_axes(gradient, context.windows)
        hits = context.saved_tensors
        in_rows = torch.cat(down.spread(gradient, hits[len(across.places) :]), 1)
        return torch.cat(across.spread(in_rows, hits[: len(across.places)]), 1), None


def _strided_axes(
    phases: Tensor, windows: pooling.Windows
) -> tuple[pooling.StridedAxis, pooling.StridedAxis]:
    """The axes of the maps whose phases [B, C, h, w] are as large as these."""
    down, across = (
        windows.strided_axis(place, axis, windows.stride[place] * phases.shape[axis])
        for place, axis in enumerate((pooling.ROWS, pooling.COLUMNS))
    )
    return down, across


def _in_phases(maps: Tensor, down: int, across: int) -> Tensor:
    """`maps` [B, C, H, W] in phases [B, columns' phases * rows' phases * C, H / down, W / across].

    One axis after the other: runtimes move a single axis fast.
    """
    batch, channels, height, width = maps.shape
    by_column = maps.reshape(-1, across).T.reshape(across, batch, channels, height, width // across)
    by_column = by_column.transpose(0, 1).reshape(-1, height // down, down, width // across)
    by_row = by_column.transpose(1, 2).reshape(batch, across, channels, down, height // down, width // across)
    return by_row.transpose(2, 3).reshape(batch, -1, height // down, width // across)


def _kernel_of_phases(weight: Tensor, down: KernelAxis, across: KernelAxis) -> Tensor:
    """The kernel [phases * Co, phases * Ci, h, w] from phases to phases, from `weight` [Co, Ci, ...]."""
    outputs, inputs = weight.shape[:2]
    phases = [
        functional.pad(weight, (*across.zeros(column), *down.zeros(row)))
        for column in range(across.stride)
        for row in range(down.stride)
    ]
    by_place = torch.cat(phases).reshape(-1, inputs, down.size, down.stride, across.size, across.stride)
    by_phase = by_place.permute(0, 5, 3, 1, 2, 4)
    return by_phase.reshape(len(phases) * outputs, -1, down.size, across.size)
