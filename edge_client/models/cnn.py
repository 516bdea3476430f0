"""The CIFAR network of McMahan et al. 2017: two convolutions, two hidden layers, a linear layer.

McMahan et al. use TensorFlow's tutorial network; AdaFL (section 3.1) refers to FedMix (Yoon et al. 2021),
which does not print its network. Two changes: no response normalisation, because it mixes neighbouring
channels, and whole images instead of 24x24 crops.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.models.shapes import image_shape


class CNN(nn.Module):
    """5x5 convolutions of 64 channels, 3x3 pooling of stride 2, hidden layers of 384 and 192.

    Input [B, C, H, W], H and W from 2 on; 1,756,426 parameters for (3, 32, 32) and 10 classes.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        channels, height, width = image_shape(input_shape, least=2)
        # Pooling of stride 2 with padding 1 halves a side and rounds up, twice.
        positions = -(-height // 4) * -(-width // 4)
        self.conv1 = nn.Conv2d(channels, 64, 5, padding=2)
        self.conv2 = nn.Conv2d(64, 64, 5, padding=2)
        self.linear1 = nn.Linear(64 * positions, 384)
        self.linear2 = nn.Linear(384, 192)
        self.linear3 = nn.Linear(192, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 3, stride=2, padding=1)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 3, stride=2, padding=1)
        x = torch.relu(self.linear1(torch.flatten(x, 1)))
        return self.linear3(torch.relu(self.linear2(x)))  # type: ignore[no-any-return]
