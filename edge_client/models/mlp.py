"""The multi-layer perceptron of McMahan et al. 2017 ("2NN" there), which AdaFL trains on MNIST."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Two hidden layers with ReLU. Input of any shape [B, ...], flattened."""

    def __init__(self, inputs: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        self.linear1 = nn.Linear(inputs, hidden)
        self.linear2 = nn.Linear(hidden, hidden)
        self.linear3 = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = torch.relu(self.linear1(torch.flatten(x, 1)))
        return self.linear3(torch.relu(self.linear2(x)))  # type: ignore[no-any-return]


def mlp(input_shape: tuple[int, ...], num_classes: int, *, hidden: int = 200) -> nn.Module:
    """Build it: 784-200-200-10, 199,210 parameters, for (1, 28, 28) and 10 classes."""
    return MLP(math.prod(input_shape), hidden, num_classes)
