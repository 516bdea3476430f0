"""Trains a change of low rank of frozen weights, W + B A (LoRA, Hu et al. 2022, section 4.1), with torch.

The network holds the merged weights at every moment, so that objectives, evaluations and checkpoints see an
ordinary one. The gradient of a weight becomes those of its factors, B^T G and G A^T by the chain rule.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from edge_client.compression.low_rank import Factors, draw_factors
from edge_client.training.objectives.base import LocalObjective, TrainingContext
from schemas.strategy import Adapters


class LowRank(LocalObjective):
    """The adapters of one training: an objective that trains factors in place of these weights.

    It is set up after all others, and corrects gradients after them. With `at_once` a gradient becomes those
    of its factors as soon as it is there, so that there is one at a time.
    """

    def __init__(self, adapters: Adapters, *, at_once: bool) -> None:
        self._terms, self._at_once = adapters, at_once
        self._hooks: list[Any] = []
        self.weights: dict[str, nn.Parameter] = {}

    def setup(self, module: nn.Module, context: TrainingContext) -> Iterable[nn.Parameter]:
        named = dict(module.named_parameters())
        self.weights = {name: named[name] for name in self._terms.arrays if name in named}
        self._received = {name: _matrix(weight).clone() for name, weight in self.weights.items()}
        self._factors = {
            name: tuple(
                nn.Parameter(_matrix(torch.from_numpy(factor)).to(weight))
                for factor in draw_factors(tuple(weight.shape), self._terms.rank, context.plan.seed, name)
            )
            for name, weight in self.weights.items()
        }
        if self._at_once:
            self._hooks = [
                weight.register_post_accumulate_grad_hook(partial(self._pass_on, name))  # type: ignore[no-untyped-call]
                for name, weight in self.weights.items()
            ]
        return [factor for pair in self._factors.values() for factor in pair]

    def correct(self) -> None:
        for name, weight in self.weights.items():
            self._pass_on(name, weight)

    def after_step(self) -> None:
        with torch.no_grad():
            for name, weight in self.weights.items():
                merged = torch.addmm(self._received[name], *self._factors[name])
                weight.copy_(merged.view(weight.shape))

    def factors(self) -> Mapping[str, Factors]:
        """The trained factors, as arrays."""
        return {
            name: Factors(
                left.detach().cpu().numpy(),
                right.detach().cpu().numpy().reshape(len(right), *self.weights[name].shape[1:]),
            )
            for name, (left, right) in self._factors.items()
        }

    def state(self) -> Mapping[str, Any]:
        return {name: dict(enumerate(pair)) for name, pair in self._factors.items()}

    def resume(self, state: Mapping[str, Any]) -> None:
        with torch.no_grad():
            for name, pair in self._factors.items():
                for place, factor in enumerate(pair):
                    factor.copy_(state[name][place])

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        for weight in self.weights.values():
            weight.grad = None

    def _pass_on(self, name: str, weight: nn.Parameter) -> None:
        """Add the weight's gradient to those of its factors, and drop it."""
        if weight.grad is None:
            return
        gradient, (left, right) = _matrix(weight.grad), self._factors[name]
        with torch.no_grad():
            for factor, part in ((left, gradient @ right.T), (right, left.T @ gradient)):
                factor.grad = part if factor.grad is None else factor.grad + part
        weight.grad = None


def make_low_rank(
    adapters: Adapters | None, objectives: Sequence[LocalObjective], *, sharp: bool
) -> LowRank | None:
    """The adapters of a training with these objectives, `sharp` if steps are sharpness-aware."""
    if adapters is None:
        return None
    corrected = any(type(objective).correct is not LocalObjective.correct for objective in objectives)
    return LowRank(adapters, at_once=not (sharp or corrected))


def _matrix(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(len(tensor), -1)
