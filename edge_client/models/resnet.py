"""Residual networks for CIFAR (He et al. 2016, section 4.2).

Three stages of 16, 32 and 64 planes behind a stem of 16 channels, no biases in convolutions. ResNet20 has
three blocks of two convolutions per stage, as in the paper. ResNet56 has six bottleneck blocks per stage, as
FedML builds it (ATTENDING, tables 6 and 7). Where a stage begins, the shortcut is a 1x1 convolution (option
B): the paper's zero padding (option A) would tie the channels of a stage to those of the stage before, so
that neither could be cut alone.

Group normalisation (Wu and He 2018) has groups of two channels, as in `cnn-group`: pruning keeps whole
groups. `bn1` to `bn3` are normalisations of either kind.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from edge_client.models.registry import image_shape

GROUP = 2  # channels of a group of group normalisation

Norm = Callable[[int], nn.Module]


class Basic(nn.Module):
    """Two 3x3 convolutions with a shortcut: [B, inputs, H, W] to [B, planes, H/s, W/s]."""

    expansion = 1

    def __init__(self, inputs: int, planes: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride=stride, padding=1, bias=False)
        self.bn1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = norm(planes)
        self.downsample = _shortcut(inputs, planes, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions with a shortcut: [B, inputs, H, W] to [B, 4 planes, H/s, W/s]."""

    expansion = 4

    def __init__(self, inputs: int, planes: int, stride: int, norm: Norm) -> None:
        super().__init__()
        outputs = planes * self.expansion
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = norm(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride=stride, padding=1, bias=False)
        self.bn2 = norm(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = norm(outputs)
        self.downsample = _shortcut(inputs, outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.bn1(self.conv1(x)))
        y = torch.relu(self.bn2(self.conv2(y)))
        return torch.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """Stem, three stages of `blocks` blocks, average pooling, one linear layer; input [B, C, H, W]."""

    def __init__(
        self,
        input_shape: tuple[int, ...],
        num_classes: int,
        *,
        block: type[Basic | Bottleneck],
        blocks: int,
        norm: Norm = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        stage = partial(_stage, block, blocks, norm)
        self.conv1 = nn.Conv2d(image_shape(input_shape)[0], 16, 3, padding=1, bias=False)
        self.bn1 = norm(16)
        self.layer1 = stage(16, 16, 1)
        self.layer2 = stage(16 * block.expansion, 32, 2)
        self.layer3 = stage(32 * block.expansion, 64, 2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(64 * block.expansion, num_classes)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(self.avgpool(x), 1))  # type: ignore[no-any-return]


def resnet20(input_shape: tuple[int, ...], num_classes: int) -> ResNet:
    """Twenty layers, 272,474 parameters for (3, 32, 32) and 10 classes (the paper's option A: 269,722)."""
    return ResNet(input_shape, num_classes, block=Basic, blocks=3)


def resnet20_group(input_shape: tuple[int, ...], num_classes: int) -> ResNet:
    """ResNet20 with group normalisation, which needs no statistics of other examples."""
    return ResNet(
        input_shape,
        num_classes,
        block=Basic,
        blocks=3,
        norm=lambda channels: nn.GroupNorm(channels // GROUP, channels),
    )


def resnet56(input_shape: tuple[int, ...], num_classes: int) -> ResNet:
    """56 layers, 591,322 parameters for (3, 32, 32) and 10 classes."""
    return ResNet(input_shape, num_classes, block=Bottleneck, blocks=6)


def _stage(
    block: type[Basic | Bottleneck], blocks: int, norm: Norm, inputs: int, planes: int, stride: int
) -> nn.Sequential:
    rest = (block(planes * block.expansion, planes, 1, norm) for _ in range(blocks - 1))
    return nn.Sequential(block(inputs, planes, stride, norm), *rest)


def _shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Sequential:
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), norm(outputs))
