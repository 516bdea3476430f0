"""A temporal convolution network for series, without weight normalisation and dropout.

Bai et al. 2018, An Empirical Evaluation of Generic Convolutional and Recurrent Networks for Sequence
Modeling, section 3.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from schemas.errors import ConfigError

WIDTH, KERNEL = 32, 3
DILATIONS = (1, 2, 4, 8)


class Block(nn.Module):
    """A causal convolution with a residual connection: an output depends on earlier inputs alone."""

    def __init__(self, dilation: int) -> None:
        super().__init__()
        self.past = (KERNEL - 1) * dilation
        self.conv = nn.Conv1d(WIDTH, WIDTH, KERNEL, dilation=dilation)

    def forward(self, x: Tensor) -> Tensor:
        """[B, 32, L] to [B, 32, L]."""
        return x + torch.relu(self.conv(functional.pad(x, (self.past, 0))))


class TCN(nn.Module):
    """Four causal convolutions of 32 channels, kernel 3 and dilations 1 to 8, which see 31 steps.

    Input [B, C, L], of which the last step's channels give the outputs; `ConfigError` for another shape.
    12,810 parameters for (1, 40) and 10 outputs.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        if len(input_shape) != 2:
            raise ConfigError("takes series [channels, length]")
        self.stem = nn.Conv1d(input_shape[0], WIDTH, 1)
        self.blocks = nn.Sequential(*(Block(dilation) for dilation in DILATIONS))
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Outputs [B, num_classes]."""
        return self.head(self.blocks(self.stem(x))[:, :, -1])  # type: ignore[no-any-return]
