"""Dropout of devices that train together: each draws from its own generator what it draws alone.

On a GPU alone, torch's fused kernel draws other numbers than its generator gives here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


@dataclass(frozen=True, eq=False)
class Draws:
    """The generators of N devices, and the examples in the batch of each."""

    generators: Sequence[torch.Generator]
    sizes: Sequence[int]


class DropoutOfEach(TorchFunctionMode):
    """Inside `torch.func.vmap` over N devices, dropout takes the draws of each."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.dropout:
            return self._drop(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _drop(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        noise: Tensor = _Kept.apply(x, 1 - p, self._draws)  # type: ignore[no-untyped-call]
        return x.mul_(noise) if inplace else x * noise


class _Kept(torch.autograd.Function):
    """The factor of each number: 0 where it is dropped, else one over the share that is kept."""

    @staticmethod
    def forward(x: Tensor, kept: float, draws: Draws) -> Tensor:
        raise RuntimeError("dropout of what is the same for all devices")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], x: Tensor, kept: float, draws: Draws
    ) -> tuple[Tensor, int]:
        """The factors [N, B, ...] for x [N, B, ...]."""
        assert dims[0] is not None
        factors = torch.ones_like(x.movedim(dims[0], 0), memory_format=torch.contiguous_format)
        for own, generator, size in zip(factors, draws.generators, draws.sizes, strict=True):
            own[:size].bernoulli_(kept, generator=generator)
        return factors.div_(kept), 0
