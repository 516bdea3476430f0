"""A small network with batch normalisation."""

from torch import nn

NORMALISED = f"{__name__}:normalised"


def normalised(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """For pictures of 8 x 8 pixels."""
    return nn.Sequential(
        nn.Conv2d(input_shape[0], 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(54, num_classes),
    )
