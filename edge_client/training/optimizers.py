"""Local optimizers: torch's own fused kernels, without the classes around them.

`torch.optim` imports torch's compiler when the first optimizer is made, used or not: 75 MB and more than a
second of every process that trains. A fused step passes once over each parameter, which spares a tenth to a
quarter of a step of a small network; the parameters are those of `torch.optim` to one part in a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from schemas.strategy import TrainingPlan

Parameters = Iterable[nn.Parameter]
State = Mapping[int, Mapping[str, Tensor]]
"""What an optimizer keeps of each parameter that has had a gradient, by the parameter's place."""

BETAS, EPSILON = (0.9, 0.999), 1e-8
"""Adam's, as in the paper (Kingma and Ba 2015, algorithm 1)."""


@dataclass(frozen=True)
class Descent:
    """A step that is no more than this: b = momentum b + g, w = w - lr b; without momentum, b is g."""

    lr: float
    momentum: float

    def step(self, parameters: list[Tensor], gradients: list[Tensor], buffers: list[Tensor]) -> None:
        """Move parameters of one device and type; `buffers` are their b, none without momentum."""
        _fused_sgd(parameters, gradients, buffers, self.lr, self.momentum)


class Optimizer(Protocol):
    """Changes `parameters` by their gradients; `state` may be asked for and put back between two steps.

    `descent` says what a step does where that is all that it does, and `momentum_buffer` is then its b.
    """

    parameters: list[nn.Parameter]
    state: dict[int, dict[str, Tensor]]
    descent: Descent | None = None

    def zero_grad(self) -> None:
        """Forget all gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """One step of every parameter that has a gradient."""


class Sgd(Optimizer):
    """Stochastic gradient descent: b = momentum b + (g + decay w), w = w - lr b; b begins as the gradient."""

    def __init__(self, parameters: Parameters, *, lr: float, momentum: float, weight_decay: float) -> None:
        self.parameters, self.state = list(parameters), {}
        self._lr, self._momentum, self._weight_decay = lr, momentum, weight_decay
        self.descent = None if weight_decay else Descent(lr, momentum)

    def step(self) -> None:
        """Parameters that have no momentum yet begin with it."""
        moved = [(place, one) for place, one in enumerate(self.parameters) if one.grad is not None]
        if not self._momentum:
            self._fused(moved, first=False)
            return
        known = [(place, one) for place, one in moved if place in self.state]
        fresh = [(place, one) for place, one in moved if place not in self.state]
        for place, one in fresh:
            self.state[place] = {"momentum_buffer": torch.empty_like(_gradient(one))}
        self._fused(known, first=False)
        self._fused(fresh, first=True)

    def _fused(self, moved: list[tuple[int, nn.Parameter]], *, first: bool) -> None:
        for group in _alike(moved):
            parameters, gradients = _pairs(group)
            buffers = [self.state[place]["momentum_buffer"] for place, _ in group] if self._momentum else []
            _fused_sgd(
                parameters, gradients, buffers, self._lr, self._momentum, self._weight_decay, first=first
            )


class Adam(Optimizer):
    """Adam with weight decay as part of the gradient (Kingma and Ba 2015)."""

    def __init__(self, parameters: Parameters, *, lr: float, weight_decay: float) -> None:
        self.parameters, self.state = list(parameters), {}
        self._lr, self._weight_decay = lr, weight_decay

    def step(self) -> None:
        """Both moments of a parameter begin at 0 with its first gradient."""
        moved = [(place, one) for place, one in enumerate(self.parameters) if one.grad is not None]
        for place, one in moved:
            if place not in self.state:
                self.state[place] = {
                    "step": torch.zeros((), dtype=torch.float32, device=one.device),
                    "exp_avg": torch.zeros_like(one, requires_grad=False),
                    "exp_avg_sq": torch.zeros_like(one, requires_grad=False),
                }
        for group in _alike(moved):
            parameters, gradients = _pairs(group)
            steps, means, squares = (
                [self.state[place][name] for place, _ in group] for name in ("step", "exp_avg", "exp_avg_sq")
            )
            torch._foreach_add_(steps, 1)
            torch._fused_adam_(
                parameters, gradients, means, squares, [], steps,
                lr=self._lr, beta1=BETAS[0], beta2=BETAS[1], eps=EPSILON, weight_decay=self._weight_decay,
                amsgrad=False, maximize=False,
            )  # fmt: skip


def _fused_sgd(
    parameters: list[Tensor],
    gradients: list[Tensor],
    buffers: list[Tensor],
    lr: float,
    momentum: float,
    weight_decay: float = 0.0,
    *,
    first: bool = False,
) -> None:
    torch._fused_sgd_(
        parameters, gradients, buffers,
        lr=lr, momentum=momentum, weight_decay=weight_decay,
        dampening=0.0, nesterov=False, maximize=False, is_first_step=first,
    )  # fmt: skip


def _alike(moved: list[tuple[int, nn.Parameter]]) -> list[list[tuple[int, nn.Parameter]]]:
    """Groups of one device and type each: the kernels take no others together."""
    groups: dict[Any, list[tuple[int, nn.Parameter]]] = {}
    for place, one in moved:
        groups.setdefault((one.device, one.dtype), []).append((place, one))
    return list(groups.values())


def _pairs(group: list[tuple[int, nn.Parameter]]) -> tuple[list[Tensor], list[Tensor]]:
    return [one.detach() for _, one in group], [_gradient(one) for _, one in group]


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


def _sgd(parameters: Parameters, plan: TrainingPlan) -> Optimizer:
    return Sgd(parameters, lr=plan.learning_rate, momentum=plan.momentum, weight_decay=plan.weight_decay)


def _adam(parameters: Parameters, plan: TrainingPlan) -> Optimizer:
    return Adam(parameters, lr=plan.learning_rate, weight_decay=plan.weight_decay)


OPTIMIZERS: Mapping[str, Callable[[Parameters, TrainingPlan], Optimizer]] = {"sgd": _sgd, "adam": _adam}
