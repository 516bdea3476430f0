"""The multi-layer perceptron of McMahan et al. 2017 ("2NN" there), which AdaFL trains on MNIST."""

import math

import torch
from torch import Tensor, nn


class MLP(nn.Module):
    """Two hidden layers with ReLU. Input [B, *input_shape], flattened; 199,210 parameters for MNIST."""

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, hidden: int = 200) -> None:
        super().__init__()
        self.linear1 = nn.Linear(math.prod(input_shape), hidden)
        self.linear2 = nn.Linear(hidden, hidden)
        self.linear3 = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = torch.relu(self.linear1(torch.flatten(x, 1)))
        return self.linear3(torch.relu(self.linear2(x)))  # type: ignore[no-any-return]
