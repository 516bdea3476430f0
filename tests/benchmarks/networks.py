"""Networks of the benchmarks."""

import math

from torch import nn


def large(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two hidden layers: 24,971,210 parameters for (1, 28, 28) and 10 classes."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 5000),
        nn.ReLU(),
        nn.Linear(5000, 4200),
        nn.ReLU(),
        nn.Linear(4200, num_classes),
    )


def narrow(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Two hidden layers: 161,210 parameters for (1, 8, 8) and 10 classes."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), 600),
        nn.ReLU(),
        nn.Linear(600, 200),
        nn.ReLU(),
        nn.Linear(200, num_classes),
    )
