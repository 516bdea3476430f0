"""2NN: the small convolutional network of ATTENDING, table 5."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.models.shapes import image_shape


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
