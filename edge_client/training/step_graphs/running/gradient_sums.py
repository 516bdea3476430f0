"""Gradients of a batch that runs in parts: the sum over the parts, in arrays that stay between batches.

Fresh arrays for each batch would be cleared by the kernel each time, which takes as long as the sum.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = Mapping[str, Array]


class GradientSums:
    """Adds the gradients of parts by name; the result is valid until the next batch."""

    def __init__(self) -> None:
        self._total: dict[str, Array] = {}

    def add(self, gradients: Arrays, weight: float, *, first: bool) -> dict[str, Array]:
        """The sum so far with `weight` times these gradients, which may be changed; `first` begins anew."""
        for name, gradient in scaled(gradients, weight).items():
            if first and name not in self._total:
                self._total[name] = gradient.copy()
            elif first:
                np.copyto(self._total[name], gradient)
            else:
                self._total[name] += gradient
        return self._total


def scaled(gradients: Arrays, factor: float) -> Arrays:
    """The gradients times a number, in place."""
    if factor != 1:
        for gradient in gradients.values():
            gradient *= np.float32(factor)
    return gradients
