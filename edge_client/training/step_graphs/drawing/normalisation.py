"""Passes of batch and group normalisation in few operators, for batches of any size."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, library


@library.custom_op("edge_federation::examples", mutates_args=())
def examples(x: Tensor) -> Tensor:
    """The length of the first axis as a floating-point tensor [1]."""
    return torch.tensor([float(x.shape[0])])


@examples.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty(1)


def normalise_batch(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`aten.native_batch_norm` of `x` [B, C, ...]: the outputs, the mean and the inverse deviation [C]."""
    running = None if running_mean is None or running_var is None else (running_mean, running_var)
    mean = x.mean(_axes(x)) if training or running is None else running[0]
    centred = x - _spread(mean, x)
    if training or running is None:
        variance = (centred * centred).mean(_axes(x))
        if running is not None:
            _follow(running[0], mean, momentum)
            _follow(running[1], variance * (_count(x) / (_count(x) - 1)), momentum)
    else:
        variance = running[1]
    deviation = torch.rsqrt(variance + eps)
    outputs = centred * _spread(_scale(deviation, weight), x)
    return outputs if bias is None else outputs + _spread(bias, x), mean, deviation


def normalised_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    mean: Tensor,
    deviation: Tensor,
    training: bool,
    eps: float,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """`aten.native_batch_norm_backward` for the outputs of `normalise_batch`."""
    centred = x - _spread(mean, x)
    scale = _scale(deviation, weight)
    of_bias = gradient.sum(_axes(x))
    of_weight = (gradient * centred).sum(_axes(x)) * deviation
    of_inputs = gradient * _spread(scale, x)
    if training:
        along, even = (each * scale / _count(x) for each in (of_weight * deviation, of_bias))
        of_inputs = of_inputs - (centred * _spread(along, x) + _spread(even, x))
    return of_inputs, of_weight, of_bias


def normalise_groups(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    batch: int,
    channels: int,
    places: int,
    groups: int,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """`aten.native_group_norm` of `x` [B, C, ...]: the outputs, the mean and the inverse deviation [B, G]."""
    mean = x.reshape(batch, groups, -1).mean(2)
    centred = _centre_groups(x, mean)
    variance = (centred * centred).mean(2)
    deviation = torch.rsqrt(variance + eps)
    outputs = (centred.reshape(batch, channels, -1) * _scales(deviation, weight, channels)).reshape(x.shape)
    return outputs if bias is None else outputs + _spread(bias, x), mean, deviation


def grouped_backward(
    gradient: Tensor,
    x: Tensor,
    mean: Tensor,
    deviation: Tensor,
    weight: Tensor | None,
    batch: int,
    channels: int,
    places: int,
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor, Tensor, Tensor]:
    """`aten.native_group_norm_backward` for the outputs of `normalise_groups`."""
    centred = _centre_groups(x, mean).reshape(batch, channels, -1)
    given = gradient.reshape(batch, channels, -1)
    by_group = (batch, groups, channels // groups)
    sums, along = (each.sum(2).reshape(by_group) for each in (given, given * centred))
    scales = _scales(deviation, weight, channels)
    count = channels // groups * places
    even, tilt = (
        (each * scales.reshape(by_group)).sum(2, keepdim=True) / count
        for each in (sums, along * (deviation * deviation).unsqueeze(2))
    )
    even, tilt = (each.expand(by_group).reshape(batch, channels, 1) for each in (even, tilt))
    of_inputs = (given * scales - (centred * tilt + even)).reshape(x.shape)
    of_weight = (along * deviation.unsqueeze(2)).sum(0).reshape(channels)
    return of_inputs, of_weight, sums.sum(0).reshape(channels)


def _centre_groups(x: Tensor, mean: Tensor) -> Tensor:
    """`x` [B, C, ...] minus the mean [B, G] of each group, as [B, G, ...]."""
    return x.reshape(*mean.shape, -1) - mean.unsqueeze(2)


def _scales(deviation: Tensor, weight: Tensor | None, channels: int) -> Tensor:
    """The factor [B, C, 1] of each channel from the inverse deviations [B, G] and the weight [C]."""
    batch, groups = deviation.shape
    each = deviation.unsqueeze(2).expand(batch, groups, channels // groups)
    scales = each if weight is None else each * weight.reshape(1, groups, -1)
    return scales.reshape(batch, channels, 1)


def _axes(x: Tensor) -> list[int]:
    return [axis for axis in range(x.dim()) if axis != 1]


def _count(x: Tensor) -> Tensor:
    """Values per channel, as a tensor [1]."""
    found: Tensor = examples(x) * math.prod(x.shape[2:])
    return found


def _follow(running: Tensor, value: Tensor, momentum: float) -> None:
    running.copy_((1 - momentum) * running + momentum * value)


def _scale(deviation: Tensor, weight: Tensor | None) -> Tensor:
    return deviation if weight is None else deviation * weight


def _spread(values: Tensor, x: Tensor) -> Tensor:
    """Values [C] in the shape [C, 1, ...] that broadcasts to `x` [B, C, ...]."""
    return values.reshape(-1, *[1] * (x.dim() - 2))


def onnx_examples(x: Any) -> Any:
    from onnxscript import opset18

    return opset18.Cast(opset18.Shape(x, start=0, end=1), to=1)
