"""An autoencoder for rows and small signals, for `task = "anomaly"`: what it cannot repeat is unusual.

A narrow layer holds what examples have in common (Hinton and Salakhutdinov 2006, Reducing the Dimensionality
of Data with Neural Networks).
"""

import math

import torch
from torch import Tensor, nn

from schemas.errors import ConfigError

HIDDEN = 64


class Autoencoder(nn.Module):
    """Hidden layers of 64, a quarter of the input's numbers (2 to 16), and 64, with ReLU around the middle.

    Input [B, *input_shape], flattened; outputs as many numbers. `ConfigError` unless `num_classes` is that.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        numbers = math.prod(input_shape)
        if num_classes != numbers:
            raise ConfigError(
                f"repeats the {numbers} numbers of an input, not {num_classes}: "
                'set [model] task = "anomaly" and leave num-classes out'
            )
        code = min(16, max(2, numbers // 4))
        self.encode1, self.encode2 = nn.Linear(numbers, HIDDEN), nn.Linear(HIDDEN, code)
        self.decode1, self.decode2 = nn.Linear(code, HIDDEN), nn.Linear(HIDDEN, numbers)

    def forward(self, x: Tensor) -> Tensor:
        """The input again [B, numbers]."""
        code = self.encode2(torch.relu(self.encode1(torch.flatten(x, 1))))
        return self.decode2(torch.relu(self.decode1(code)))  # type: ignore[no-any-return]
