"""Local optimizers on numpy arrays, in place, with the formulas of `edge_client.training.optimizers`.

A change of low rank of frozen weights is trained as `edge_client.training.low_rank` does.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.low_rank import Factors, draw_factors, product
from schemas.strategy import Adapters, TrainingPlan

Array = NDArray[np.float32]
Arrays = Mapping[str, Array]
BETAS, EPSILON = (0.9, 0.999), 1e-8
BLOCK = 32 * 1024  # numbers that are updated at once, few enough for a processor's cache


class Optimizer(Protocol):
    """Updates weights by their gradients, which it uses as working memory.

    `rate` is the learning rate of the next step. `state` holds the optimizer's arrays, by their kind and the
    weight's name; it may be read and replaced between two steps.
    """

    rate: float
    state: dict[str, dict[str, Array]]
    steps: int

    def step(self, weights: Arrays, gradients: Arrays) -> None:
        """Update every weight that has a gradient."""


class Sgd(Optimizer):
    """b = momentum b + (g + decay w), w = w - lr b."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.rate, self._momentum = plan.learning_rate, np.float32(plan.momentum)
        self._decay = np.float32(plan.weight_decay)
        self.state, self.steps = ({"momentum": {}} if plan.momentum else {}), 0

    def step(self, weights: Arrays, gradients: Arrays) -> None:
        self.steps += 1
        rate = np.float32(self.rate)
        for weight, gradient, *means in _blocks(weights, gradients, self.state):
            if self._decay:
                gradient += self._decay * weight
            for mean in means:
                mean *= self._momentum
                mean += gradient
                np.copyto(gradient, mean)
            gradient *= rate
            weight -= gradient


class Adam(Optimizer):
    """Adam (Kingma and Ba 2015), with weight decay as part of the gradient."""

    decoupled = False

    def __init__(self, plan: TrainingPlan) -> None:
        self.rate, self._decay = plan.learning_rate, np.float32(plan.weight_decay)
        self.state, self.steps = {"mean": {}, "square": {}}, 0

    def step(self, weights: Arrays, gradients: Arrays) -> None:
        self.steps += 1
        first, second = (np.float32(beta) for beta in BETAS)
        # Subtracted in double precision: 1 - 0.999 in float32 is 5e-5 too large.
        new_first, new_second = (np.float32(1 - beta) for beta in BETAS)
        size = np.float32(self.rate / (1 - BETAS[0] ** self.steps))
        root = np.float32(math.sqrt(1 - BETAS[1] ** self.steps))
        kept = np.float32(1 - self.rate * float(self._decay))
        for weight, gradient, mean, square in _blocks(weights, gradients, self.state):
            if self._decay and self.decoupled:
                weight *= kept
            elif self._decay:
                gradient += self._decay * weight
            mean *= first
            mean += new_first * gradient
            np.multiply(gradient, gradient, out=gradient)
            gradient *= new_second
            square *= second
            square += gradient
            np.sqrt(square, out=gradient)
            gradient /= root
            gradient += np.float32(EPSILON)
            np.divide(mean, gradient, out=gradient)
            gradient *= size
            weight -= gradient


class AdamW(Adam):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019)."""

    decoupled = True


OPTIMIZERS: Mapping[str, Callable[[TrainingPlan], Optimizer]] = {"sgd": Sgd, "adam": Adam, "adamw": AdamW}


def _blocks(
    weights: Arrays, gradients: Arrays, state: Mapping[str, dict[str, Array]]
) -> Iterator[tuple[Array, ...]]:
    """Blocks of every weight, its gradient, and its state of each kind, which begins as zeros."""
    for name, gradient in gradients.items():
        for arrays in state.values():
            if name not in arrays:
                arrays[name] = np.zeros_like(weights[name])
        kinds = [arrays[name] for arrays in state.values()]
        flat = [array.reshape(-1) for array in (weights[name], gradient, *kinds)]
        for start in range(0, gradient.size, BLOCK):
            yield tuple(array[start : start + BLOCK] for array in flat)


LEFT, RIGHT = "left of ", "right of "


class LowRank:
    """The adapters of one training of these arrays, which hold the merged weights at every moment.

    `arrays` are the factors that the optimizer changes in place, under names of their own.
    """

    def __init__(self, adapters: Adapters, weights: Mapping[str, Array], seed: int) -> None:
        self._names = [name for name in adapters.arrays if name in weights]
        self._received = {name: weights[name].copy() for name in self._names}
        self.arrays: dict[str, Array] = {}
        for name in self._names:
            left, right = draw_factors(weights[name].shape, adapters.rank, seed, name)
            self.arrays |= {LEFT + name: left, RIGHT + name: right}

    def pass_on(self, gradients: Mapping[str, Array]) -> dict[str, Array]:
        """The gradients of the factors in place of those of their weights."""
        passed = {name: gradient for name, gradient in gradients.items() if name not in self._received}
        for name in self._names:
            if name in gradients:
                gradient = gradients[name].reshape(len(gradients[name]), -1)
                left, right = (self.arrays[side + name] for side in (LEFT, RIGHT))
                passed[LEFT + name] = gradient @ right.reshape(len(right), -1).T
                passed[RIGHT + name] = (left.T @ gradient).reshape(right.shape)
        return passed

    def merge(self, weights: Mapping[str, Array]) -> None:
        for name, pair in self.factors().items():
            np.add(self._received[name], product(*pair), out=weights[name])

    def factors(self) -> dict[str, Factors]:
        return {name: Factors(self.arrays[LEFT + name], self.arrays[RIGHT + name]) for name in self._names}

    def resume(self, saved: Mapping[str, Array]) -> None:
        for name, array in self.arrays.items():
            np.copyto(array, saved[name])
