"""The rule of each layer type: its input channels, its output channels and its parameters' axes.

Rules apply to exact types: a subclass might have its own forward method.
"""

from collections.abc import Sequence
from typing import cast

from torch import Tensor, nn

from edge_client.pruning.channel_graph import attention, reshaping
from edge_client.pruning.channel_graph.calls import Call, Signal, Value
from edge_client.pruning.channel_graph.operations import elementwise, spatial


def convolution(call: Call) -> Value:
    """Input channels on axis 1 of the weight, new channels on axis 0; with groups the two are coupled."""
    return convolve(call, call.name, cast(nn.Conv2d, call.layer))


def linear(call: Call) -> Value:
    """The last axis is consumed and replaced; channels on another axis pass through."""
    return multiply(call, call.name, cast(nn.Linear, call.layer))


def channel_norm(call: Call) -> Value:
    """Batch and instance normalisation: statistics per channel, on axis 1."""
    return _along(call, axis=1, position=0)


def group_norm(call: Call) -> Value:
    """Group normalisation: the channels of each norm group stay together, unless there is a single one."""
    return normalise_groups(call, cast(nn.GroupNorm, call.layer))


def layer_norm(call: Call) -> Value:
    """Layer normalisation over the last axes; statistics are computed over the remaining channels."""
    return normalise_last(call, cast(nn.LayerNorm, call.layer))


def softmax(call: Call) -> Value:
    """`nn.Softmax` along an axis without channels."""
    return attention.normalised_along(call, call.layer.dim)


def prelu(call: Call) -> Value:
    """A single slope, or one per channel."""
    if cast(nn.PReLU, call.layer).num_parameters == 1:
        return elementwise(call)
    return _along(call, axis=1, position=0)


def flatten(call: Call) -> Value:
    layer = cast(nn.Flatten, call.layer)
    return reshaping.merge_axes(call, layer.start_dim, layer.end_dim)


def convolve(call: Call, name: str, layer: nn.Conv2d) -> Value:
    """What the convolution `name` does to the channels of the call's source."""
    if len(call.shape) != layer.weight.ndim:
        return call.give_up()
    if layer.groups > 1:
        return _couple(call, name, layer)
    _consume(call, layer.weight, expected_axis=1)
    return _produce(call, name, layer.weight, layer.bias, axis=1)


def multiply(call: Call, name: str, layer: nn.Linear) -> Value:
    """What the linear layer `name` does to the channels of the call's source."""
    last = len(call.shape) - 1
    signal = call.signal
    if signal and signal.axis != last and any(segment.group for segment in signal.segments):
        return signal
    _consume(call, layer.weight, expected_axis=last)
    return _produce(call, name, layer.weight, layer.bias, axis=last)


def normalise_groups(call: Call, layer: nn.GroupNorm) -> Value:
    """What a group normalisation does to the channels of the call's source."""
    signal = call.signal
    if signal and layer.num_groups > 1:
        call.ledger.keep_blocks(signal.segments, layer.num_channels // layer.num_groups)
    return claim_along(call, _tensors(layer), axis=1, position=0)


def normalise_last(call: Call, layer: nn.LayerNorm) -> Value:
    """What a layer normalisation does to the channels of the call's source."""
    signal = call.signal
    if signal is None:
        return None
    position = signal.axis - (len(call.shape) - len(layer.normalized_shape))
    return signal if position < 0 else claim_along(call, _tensors(layer), axis=signal.axis, position=position)


def _couple(call: Call, name: str, layer: nn.Conv2d) -> Value:
    """A convolution in groups keeps or loses whole groups, with equally many inputs and outputs each."""
    signal, channels = call.signal, layer.out_channels
    if signal is None or signal.axis != 1 or signal.block > 1 or layer.in_channels != channels:
        return call.give_up()
    if channels > layer.groups:
        call.ledger.keep_blocks(signal.segments, channels // layer.groups)
    call.ledger.carry(name, signal.segments)
    for tensor in (layer.weight, layer.bias):
        if tensor is not None:
            call.ledger.claim(tensor, 0, signal.segments)
    return signal


def _consume(call: Call, weight: Tensor, *, expected_axis: int) -> None:
    signal = call.signal
    if signal and signal.axis == expected_axis and signal.block == 1:
        call.ledger.claim(weight, 1, signal.segments)
    else:
        call.give_up()


def _produce(call: Call, name: str, weight: Tensor, bias: Tensor | None, *, axis: int) -> Signal:
    segments = call.ledger.new(name, weight.shape[0])
    call.ledger.claim(weight, 0, segments)
    if bias is not None:
        call.ledger.claim(bias, 0, segments)
    return Signal(axis, segments)


def _along(call: Call, *, axis: int, position: int) -> Value:
    """Channels pass through; in the layer's tensors they are on axis `position`."""
    return claim_along(call, _tensors(call.layer), axis=axis, position=position)


def claim_along(call: Call, tensors: Sequence[Tensor], *, axis: int, position: int) -> Value:
    """Channels on `axis` pass through; in `tensors` they are on axis `position`."""
    signal = call.signal
    # Without a tensor the map could not record that this layer is cut too.
    if signal is None or signal.axis != axis or signal.block > 1 or not tensors:
        return call.give_up()
    for tensor in tensors:
        call.ledger.claim(tensor, position, signal.segments)
    return signal


def _tensors(layer: nn.Module) -> list[Tensor]:
    return [tensor for tensor in (*layer.parameters(), *layer.buffers()) if tensor.ndim]


LAYERS: dict[type[nn.Module], reshaping.Rule] = {
    nn.Conv1d: convolution, nn.Conv2d: convolution, nn.Conv3d: convolution,
    nn.Linear: linear,
    nn.BatchNorm1d: channel_norm, nn.BatchNorm2d: channel_norm, nn.BatchNorm3d: channel_norm,
    nn.InstanceNorm1d: channel_norm, nn.InstanceNorm2d: channel_norm, nn.InstanceNorm3d: channel_norm,
    nn.GroupNorm: group_norm,
    nn.LayerNorm: layer_norm,
    nn.PReLU: prelu,
    nn.Softmax: softmax,
    nn.Flatten: flatten,
    nn.MaxPool1d: spatial(1), nn.MaxPool2d: spatial(2), nn.MaxPool3d: spatial(3),
    nn.AvgPool1d: spatial(1), nn.AvgPool2d: spatial(2), nn.AvgPool3d: spatial(3),
    nn.AdaptiveAvgPool1d: spatial(1), nn.AdaptiveAvgPool2d: spatial(2), nn.AdaptiveAvgPool3d: spatial(3),
    nn.AdaptiveMaxPool1d: spatial(1), nn.AdaptiveMaxPool2d: spatial(2), nn.AdaptiveMaxPool3d: spatial(3),
    nn.ZeroPad2d: spatial(2), nn.ReflectionPad2d: spatial(2),
    nn.Upsample: spatial(1),
    **dict.fromkeys(
        (nn.Identity, nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish,
         nn.Sigmoid, nn.Tanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardtanh, nn.Softplus, nn.LogSigmoid,
         nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
        elementwise,
    ),
}  # fmt: skip

# Layers of libraries that compute what torch's do, but whose forward methods say so in other words; by the
# name of their type, so that no library is imported.
LIBRARY_LAYERS: dict[str, reshaping.Rule] = {
    "timm.layers.conv2d_same.Conv2dSame": convolution,
    "timm.layers.pool2d_same.AvgPool2dSame": spatial(2),
    "timm.layers.pool2d_same.MaxPool2dSame": spatial(2),
}


def rule_of_layer(layer: nn.Module) -> reshaping.Rule | None:
    """The rule of a layer's type; None for a type that is traced through, or unknown."""
    kind = type(layer)
    return LAYERS.get(kind) or LIBRARY_LAYERS.get(f"{kind.__module__}.{kind.__qualname__}")
