"""The CIFAR network of McMahan et al. 2017: two convolutions, two hidden layers, a linear layer.

McMahan et al. use TensorFlow's tutorial network; AdaFL (section 3.1) refers to FedMix (Yoon et al. 2021),
which does not print its network. Two changes: no response normalisation, because it mixes neighbouring
channels, and whole images instead of 24x24 crops.

Normalisation is an option. Group normalisation (Wu and He 2018) has their 32 groups, here of two channels:
pruning keeps whole groups, so that the statistics of a sub-model's groups are those of the full network.
With a single group they would change with every channel that is cut.
"""

import math
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.models.registry import image_shape

# 2NN: the small convolutional network of ATTENDING, table 5.


class TwoNN(nn.Module):
    """Two 5x5 convolutions with pooling, one hidden layer of 512.

    Input [B, C, H, W], H and W from 4 on; 1,663,370 parameters for (1, 28, 28) and 10 classes.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape(input_shape, least=4)
        self.conv1 = nn.Conv2d(channels, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.linear1 = nn.Linear(64 * (height // 4) * (width // 4), 512)
        self.linear2 = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        x = torch.relu(self.linear1(torch.flatten(x, 1)))
        return self.linear2(x)  # type: ignore[no-any-return]


# The multi-layer perceptron of McMahan et al. 2017 ("2NN" there), which AdaFL trains on MNIST.


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


Norm = Literal["none", "batch", "group"]
WIDTH, GROUPS = 64, 32  # channels of each convolution, and groups of group normalisation


class CNN(nn.Module):
    """5x5 convolutions of 64 channels, 3x3 pooling of stride 2, hidden layers of 384 and 192.

    Input [B, C, H, W], H and W from 2 on; 1,756,426 parameters for (3, 32, 32) and 10 classes. `norm` is the
    normalisation between each convolution and its ReLU; "batch" and "group" add 256 parameters.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, norm: Norm = "none") -> None:
        super().__init__()
        channels, height, width = image_shape(input_shape, least=2)
        # Pooling of stride 2 with padding 1 halves a side and rounds up, twice.
        positions = -(-height // 4) * -(-width // 4)
        self.conv1 = nn.Conv2d(channels, WIDTH, 5, padding=2)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 5, padding=2)
        self.linear1 = nn.Linear(WIDTH * positions, 384)
        self.linear2 = nn.Linear(384, 192)
        self.linear3 = nn.Linear(192, num_classes)
        self.norm1, self.norm2 = _norm(norm), _norm(norm)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = functional.max_pool2d(torch.relu(self.norm1(self.conv1(x))), 3, stride=2, padding=1)
        x = functional.max_pool2d(torch.relu(self.norm2(self.conv2(x))), 3, stride=2, padding=1)
        x = torch.relu(self.linear1(torch.flatten(x, 1)))
        return self.linear3(torch.relu(self.linear2(x)))  # type: ignore[no-any-return]


def cnn_batch(input_shape: tuple[int, ...], num_classes: int) -> CNN:
    """The network with batch normalisation (Ioffe and Szegedy 2015)."""
    return CNN(input_shape, num_classes, norm="batch")


def cnn_group(input_shape: tuple[int, ...], num_classes: int) -> CNN:
    """The network with group normalisation (Wu and He 2018), which needs no statistics of other examples."""
    return CNN(input_shape, num_classes, norm="group")


def _norm(kind: Norm) -> nn.Module:
    if kind == "batch":
        return nn.BatchNorm2d(WIDTH)
    return nn.GroupNorm(GROUPS, WIDTH) if kind == "group" else nn.Identity()
