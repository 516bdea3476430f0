"""The network of the storm's federations: as small as the channels of a layer allow."""

from torch import nn


def tiny(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of 4 inputs, one hidden layer and `num_classes` outputs."""
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 160), nn.ReLU(), nn.Linear(160, num_classes))
