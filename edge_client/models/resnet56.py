"""ResNet56 for CIFAR as FedML builds it (He et al. 2016; ATTENDING, tables 6 and 7).

Bottleneck blocks, six per stage, a stem of 16 channels, no biases in convolutions.
"""

import torch
from torch import Tensor, nn

from edge_client.models.shapes import image_shape

EXPANSION = 4
BLOCKS = 6


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions with a shortcut: [B, inputs, H, W] to [B, 4 planes, H/s, W/s]."""

    def __init__(self, inputs: int, planes: int, stride: int) -> None:
        super().__init__()
        outputs = planes * EXPANSION
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.downsample.append(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False))
            self.downsample.append(nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """The block's output."""
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet56(nn.Module):
    """Stem, three stages of 16, 32 and 64 planes, average pooling, one linear layer.

    Input [B, C, H, W]; 591,322 parameters for (3, 32, 32) and 10 classes.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(image_shape(input_shape)[0], 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, 1)
        self.layer2 = _stage(64, 32, 2)
        self.layer3 = _stage(128, 64, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64 * EXPANSION, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def _stage(inputs: int, planes: int, stride: int) -> nn.Sequential:
    rest = (Bottleneck(planes * EXPANSION, planes, 1) for _ in range(BLOCKS - 1))
    return nn.Sequential(Bottleneck(inputs, planes, stride), *rest)
