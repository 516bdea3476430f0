"""The rule of each layer type: its input channels, its output channels and its parameters' axes.

Rules apply to exact types: a subclass might have its own forward method.
"""

from typing import cast

from torch import Tensor, nn

from edge_client.pruning.channel_graph.attention import normalised_along
from edge_client.pruning.channel_graph.calls import Call, Signal, Value
from edge_client.pruning.channel_graph.operations import elementwise, spatial
from edge_client.pruning.channel_graph.reshaping import Rule, merge_axes


def convolution(call: Call) -> Value:
    """Input channels on axis 1 of the weight, new channels on axis 0; depth-wise ones couple the two."""
    layer = cast(nn.Conv2d, call.layer)
    if len(call.shape) != layer.weight.ndim:
        return call.give_up()
    if layer.groups > 1:
        return _depthwise(call, layer)
    _consume(call, layer.weight, expected_axis=1)
    return _produce(call, layer.weight, layer.bias, axis=1)


def linear(call: Call) -> Value:
    """The last axis is consumed and replaced; channels on another axis pass through."""
    layer = cast(nn.Linear, call.layer)
    last = len(call.shape) - 1
    signal = call.signal
    if signal and signal.axis != last and any(segment.group for segment in signal.segments):
        return signal
    _consume(call, layer.weight, expected_axis=last)
    return _produce(call, layer.weight, layer.bias, axis=last)


def channel_norm(call: Call) -> Value:
    """Batch and instance normalisation: statistics per channel, on axis 1."""
    return _along(call, axis=1, position=0)


def group_norm(call: Call) -> Value:
    """Group normalisation: the channels of each norm group stay together, unless there is a single one."""
    layer = cast(nn.GroupNorm, call.layer)
    signal = call.signal
    if signal and layer.num_groups > 1:
        call.ledger.keep_blocks(signal.segments, layer.num_channels // layer.num_groups)
    return _along(call, axis=1, position=0)


def layer_norm(call: Call) -> Value:
    """Layer normalisation over the last axes; statistics are computed over the remaining channels."""
    layer = cast(nn.LayerNorm, call.layer)
    signal = call.signal
    if signal is None:
        return None
    position = signal.axis - (len(call.shape) - len(layer.normalized_shape))
    return signal if position < 0 else _along(call, axis=signal.axis, position=position)


def softmax(call: Call) -> Value:
    """`nn.Softmax` along an axis without channels."""
    return normalised_along(call, call.layer.dim)


def prelu(call: Call) -> Value:
    """A single slope, or one per channel."""
    if cast(nn.PReLU, call.layer).num_parameters == 1:
        return elementwise(call)
    return _along(call, axis=1, position=0)


def flatten(call: Call) -> Value:
    layer = cast(nn.Flatten, call.layer)
    return merge_axes(call, layer.start_dim, layer.end_dim)


def _depthwise(call: Call, layer: nn.Conv2d) -> Value:
    signal = call.signal
    one_to_one = layer.groups == layer.in_channels == layer.out_channels
    if signal is None or signal.axis != 1 or signal.block > 1 or not one_to_one:
        return call.give_up()
    call.ledger.carry(call.name, signal.segments)
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


def _produce(call: Call, weight: Tensor, bias: Tensor | None, *, axis: int) -> Signal:
    segments = call.ledger.new(call.name, weight.shape[0])
    call.ledger.claim(weight, 0, segments)
    if bias is not None:
        call.ledger.claim(bias, 0, segments)
    return Signal(axis, segments)


def _along(call: Call, *, axis: int, position: int) -> Value:
    """Channels pass through; in the layer's tensors they are on axis `position`."""
    signal = call.signal
    tensors = [t for t in (*call.layer.parameters(), *call.layer.buffers()) if t.ndim]
    # Without a tensor the map could not record that this layer is cut too.
    if signal is None or signal.axis != axis or signal.block > 1 or not tensors:
        return call.give_up()
    for tensor in tensors:
        call.ledger.claim(tensor, position, signal.segments)
    return signal


LAYERS: dict[type[nn.Module], Rule] = {
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
