"""MobileNetV2 (Sandler et al. 2018) as torchvision builds it."""

from torch import nn

from edge_client.models import registry, zoo


def mobilenet_v2(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build it with a stem for the images' colours: 2,236,682 parameters for 3 colours and 10 classes.

    With torchvision's strides an image of 32x32 shrinks to a single position.
    """
    return _of_width(1.0, input_shape, num_classes)


def mobilenet_v2_quarter(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build it with about a quarter of the channels: 250,922 parameters for 3 colours and 10 classes."""
    return _of_width(0.25, input_shape, num_classes)


def _of_width(width: float, input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    colours = registry.image_shape(input_shape)[0]
    from torchvision import models

    module: nn.Module = models.mobilenet_v2(weights=None, num_classes=num_classes, width_mult=width)
    return module if colours == 3 else zoo.with_colours(module, colours)
