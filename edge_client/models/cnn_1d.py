"""A convolutional network for signals: vibration, current, a heartbeat, windows of a table.

Two convolutions along time with pooling, as the two-dimensional `cnn` has, and one hidden layer: the blocks
of Wang et al. 2017 (Time Series Classification from Scratch with Deep Neural Networks, section II), with
pooling between them, so that a board of little memory can train it.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from schemas.errors import ConfigError

WIDTH, KERNEL, HIDDEN = 32, 7, 64
MIN_LENGTH = 4


class CNN1D(nn.Module):
    """Convolutions of 32 and 64 channels and kernel 7, max pooling of 2 after each, a hidden layer of 64.

    Input [B, C, L], L from 4 on; `ConfigError` for another shape. 56,330 parameters for (1, 40), 10 classes.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        if len(input_shape) != 2 or input_shape[1] < MIN_LENGTH:
            raise ConfigError(f"takes signals [channels, length] with a length of at least {MIN_LENGTH}")
        channels, length = input_shape
        self.conv1 = nn.Conv1d(channels, WIDTH, KERNEL, padding=KERNEL // 2)
        self.conv2 = nn.Conv1d(WIDTH, 2 * WIDTH, KERNEL, padding=KERNEL // 2)
        self.linear1 = nn.Linear(2 * WIDTH * (length // 4), HIDDEN)
        self.linear2 = nn.Linear(HIDDEN, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = functional.max_pool1d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool1d(torch.relu(self.conv2(x)), 2)
        return self.linear2(torch.relu(self.linear1(torch.flatten(x, 1))))  # type: ignore[no-any-return]
