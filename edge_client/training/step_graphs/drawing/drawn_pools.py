"""Maximum poolings of a network as its step graph has them.

The pooling of a ReLU's outputs is the ReLU of the pooled inputs: the largest number of a window is the same
either way, and so are its place and its gradient. The ReLU then has a quarter of the numbers, in both passes.
The pooling of a convolution's outputs, with or without a ReLU between them, is one of phases where that pays.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edge_client.training.step_graphs.drawing.phases import Convolution
from edge_client.training.step_graphs.drawing.pooling import Sizes, Windows, windows_of

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
            return self._pooled(args[0], _windows(*args[1:], **options))
        result = func(*args, **options)
        if func in RELUS and args and result is not args[0]:
            self._relus.append((result, args[0]))
        if func in CONVOLUTIONS and args:
            self._convolved.append((result, Convolution(*args, **options)))
        return result

    def _pooled(self, maps: Tensor, windows: Windows) -> Tensor:
        for outputs, inputs in self._relus:
            if outputs is maps:
                return torch.relu(self._pooled(inputs, windows))
        for outputs, convolution in self._convolved:
            if outputs is maps and convolution.suits(windows):
                return convolution.pooled(windows)
        return windows.pooled_by_torch(maps)


def _windows(
    kernel_size: Sizes,
    stride: Sizes | None = None,
    padding: Sizes = 0,
    dilation: Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Windows:
    """The windows of a pooling that has torch's arguments after its inputs."""
    return windows_of(kernel_size, stride, padding, dilation, ceil_mode)
