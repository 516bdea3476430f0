"""Lets a network pool before a ReLU instead of after it.

The largest number of a window is the same either way, and so are its place and its gradient. The ReLU then
has a quarter of the numbers, in both passes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

RELUS = (torch.relu, Tensor.relu, functional.relu)
POOLS = (functional.max_pool2d, torch.max_pool2d)


class PoolsFirst(TorchFunctionMode):
    """Within it a maximum pooling of a ReLU's outputs is a ReLU of the pooled inputs."""

    def __init__(self) -> None:
        super().__init__()
        self._relus: list[tuple[Tensor, Tensor]] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        options = kwargs or {}
        if func in POOLS and args and not options.get("return_indices"):
            for outputs, inputs in self._relus:
                if outputs is args[0]:
                    return torch.relu(func(inputs, *args[1:], **options))
        result = func(*args, **options)
        if func in RELUS and args and result is not args[0]:
            self._relus.append((result, args[0]))
        return result
