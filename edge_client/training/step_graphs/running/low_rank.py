"""Trains a change of low rank of frozen weights with step graphs, as `edge_client.training.low_rank` does."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.low_rank import Factors, draw_factors, product
from schemas.strategy import Adapters

Array = NDArray[Any]
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
