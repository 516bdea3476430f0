"""MobileNetV2 (Sandler et al. 2018) as torchvision builds it."""

from torch import nn

from edge_client.models.shapes import image_shape
from edge_client.system.torchvision_compat import torchvision_ready


def mobilenet_v2(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Build it with a stem for the images' colours: 2,236,682 parameters for 3 colours and 10 classes.

    With torchvision's strides an image of 32x32 shrinks to a single position.
    """
    colours = image_shape(input_shape)[0]
    torchvision_ready()
    from torchvision import models

    module: nn.Module = models.mobilenet_v2(weights=None, num_classes=num_classes)
    if colours != 3:
        stem = module.get_submodule("features.0")
        assert isinstance(stem, nn.Sequential)
        stem[0] = nn.Conv2d(colours, 32, 3, stride=2, padding=1, bias=False)
    return module
