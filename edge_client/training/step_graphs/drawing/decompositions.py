"""Operators of a step in terms of those that ONNX has: above all the backward pass of a convolution."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from edge_client.training.step_graphs.drawing import frequencies, normalisation, pooling

ATEN = torch.ops.aten


@cache
def step_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """What replaces operators of a backward pass: torch's core set, and operators that it keeps."""
    from torch._decomp import core_aten_decompositions

    return {
        **core_aten_decompositions(),
        ATEN.native_batch_norm.default: normalisation.normalise_batch,
        ATEN._native_batch_norm_legit.default: normalisation.normalise_batch,
        ATEN.native_batch_norm_backward.default: normalisation.normalised_backward,
        ATEN.native_group_norm.default: normalisation.normalise_groups,
        ATEN.native_group_norm_backward.default: normalisation.grouped_backward,
        ATEN._scaled_dot_product_flash_attention_for_cpu_backward.default: attended_backward,
        ATEN.avg_pool2d_backward.default: averaged_backward,
        ATEN.hardtanh_backward.default: hardtanh_backward,
        ATEN.max_pool2d_with_indices.default: pooling.pool_windows,
        ATEN.max_pool2d_with_indices_backward.default: pooling.pooled_backward,
        ATEN.squeeze.dims: squeeze_axes,
        ATEN.threshold_backward.default: threshold_backward,
        ATEN.upsample_nearest2d_backward.default: enlarged_backward,
        ATEN.convolution.default: convolution,
        # ONNX lacks the backward pass of a convolution.
        ATEN.convolution_backward.default: convolution_backward,
    }


def squeeze_axes(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The array without those axes, as far as their size is 1."""
    kept = [size for axis, size in enumerate(x.shape) if size != 1 or axis not in {a % x.dim() for a in axes}]
    return x.view(kept)


def threshold_backward(gradient: Tensor, outputs: Tensor, threshold: float) -> Tensor:
    """The gradient where a ReLU's outputs exceed the threshold; a choice by `where` takes twice the time."""
    return gradient * (outputs > threshold).to(gradient.dtype)


def hardtanh_backward(gradient: Tensor, inputs: Tensor, least: float, most: float) -> Tensor:
    """The gradient where inputs lie between the bounds, as ReLU6 needs it."""
    return gradient * ((inputs > least) & (inputs < most)).to(gradient.dtype)


def convolution(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A convolution in the frequency domain; `NotImplemented` where it is not faster there."""
    geometry = frequencies.Geometry(stride, padding, dilation, groups)
    if transposed or not frequencies.is_faster(inputs.shape, weight.shape, geometry):
        return NotImplemented
    found = frequencies.convolve_maps(inputs, weight)
    return found if bias is None else found + bias.reshape(-1, 1, 1)


def convolution_backward(
    gradient: Tensor,
    inputs: Tensor,
    weight: Tensor,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of a convolution's inputs [B, Ci, ...], weight [Co, Ci / groups, ...] and bias, as `wanted`.

    Raises `NotImplementedError` for a transposed convolution.
    """
    if transposed:
        raise NotImplementedError("transposed convolutions")
    geometry = frequencies.Geometry(stride, padding, dilation, groups)
    return (
        _of_inputs(gradient, inputs, weight, geometry) if wanted[0] else None,
        _of_weight(gradient, inputs, weight, geometry) if wanted[1] else None,
        gradient.sum([0, *range(2, gradient.dim())]) if wanted[2] else None,
    )


def averaged_backward(
    gradient: Tensor,
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """`aten.avg_pool2d_backward`: every output spreads its gradient evenly over its window.

    Raises `NotImplementedError` where windows have different divisors.
    """
    if ceil or (any(padding) and not count_include_pad):
        raise NotImplementedError("average pooling with windows of different sizes")
    sizes, channels = pooling.pair(kernel), x.shape[1]
    even = torch.full((channels, 1, *sizes), 1 / (divisor or sizes[0] * sizes[1]), dtype=x.dtype)
    geometry = frequencies.Geometry(pooling.pair(stride or kernel), pooling.pair(padding), [1, 1], channels)
    return _transpose_convolution(gradient, x.shape, even, geometry)


def enlarged_backward(
    gradient: Tensor, outputs: Sequence[int], inputs: Sequence[int], *scales: float | None
) -> Tensor:
    """`aten.upsample_nearest2d_backward`: the gradient of an input [B, C, ...] is the sum of its copies'.

    Raises `NotImplementedError` unless every input has as many.
    """
    factors = [size // given for size, given in zip(outputs, inputs[2:], strict=True)]
    if any(size % given for size, given in zip(outputs, inputs[2:], strict=True)):
        raise NotImplementedError("resizing by factors that are not whole")
    found: Tensor = ATEN.avg_pool2d(gradient, factors, factors) * math.prod(factors)
    return found


def _of_inputs(gradient: Tensor, inputs: Tensor, weight: Tensor, geometry: frequencies.Geometry) -> Tensor:
    if frequencies.is_faster(inputs.shape, weight.shape, geometry):
        return frequencies.gradient_of_maps(gradient, weight)
    return _transpose_convolution(gradient, inputs.shape, weight, geometry)


def _transpose_convolution(
    gradient: Tensor, shape: Sequence[int], weight: Tensor, geometry: frequencies.Geometry
) -> Tensor:
    """The transposed convolution of a gradient, for inputs of this shape."""
    stride, padding, dilation, groups = geometry
    missing = [
        shape[2 + axis]
        - ((gradient.shape[2 + axis] - 1) * stride[axis] - 2 * padding[axis])
        - dilation[axis] * (weight.shape[2 + axis] - 1)
        - 1
        for axis in range(len(stride))
    ]
    found: Tensor = ATEN.convolution(gradient, weight, None, stride, padding, dilation, True, missing, groups)
    return found


def _of_weight(gradient: Tensor, inputs: Tensor, weight: Tensor, geometry: frequencies.Geometry) -> Tensor:
    """The inputs convolved with the gradient, in which examples are the channels.

    The inputs' channels are an axis of the volume that is convolved: one product of matrices, whose columns
    are channels times kernel positions, gives the whole gradient. Runtimes copy these columns in runs along
    the innermost axis, which is that of the channels if they are more than the kernel is wide.
    """
    if frequencies.is_faster(inputs.shape, weight.shape, geometry):
        return frequencies.gradient_of_kernel(gradient, inputs, weight)
    stride, padding, dilation, groups = geometry
    axes = len(stride)
    batch, channels = inputs.shape[:2]
    outputs, each = gradient.shape[1], channels // groups
    last = axes if each > weight.shape[-1] else 0
    # As vectors: a transpose of maps and one of the gradient before it would become a single slow one.
    volume, kernels = inputs, gradient.flatten(2).transpose(0, 1)
    if groups > 1:
        # Only here: with one group, moving it and the channels at once would take six times the time.
        volume = inputs.reshape(batch, groups, each, *inputs.shape[2:]).transpose(0, 1)
        kernels = gradient.reshape(batch, groups, outputs // groups, *gradient.shape[2:])
        kernels = kernels.permute(1, 2, 0, *range(3, 3 + axes))
    volume = _move_axis(volume.reshape(1, groups * batch, each, *inputs.shape[2:]), 2, 2 + last)
    kernels = kernels.reshape(outputs, batch, *_with(last, gradient.shape[2:], 1))
    sizes = [_with(last, sizes, neutral) for sizes, neutral in ((dilation, 1), (padding, 0), (stride, 1))]
    found: Tensor = ATEN.convolution(volume, kernels, None, *sizes, False, [0] * (axes + 1), groups)
    found = _move_axis(found.squeeze(0), 1 + last, 1)
    for axis in range(axes):
        # A stride may leave inputs at the end that no kernel reaches.
        if found.shape[2 + axis] != weight.shape[2 + axis]:
            found = found.narrow(2 + axis, 0, weight.shape[2 + axis])
    return found


def _move_axis(tensor: Tensor, source: int, target: int) -> Tensor:
    return tensor if source == target else tensor.movedim(source, target)


def _with(place: int, sizes: Sequence[int], size: int) -> list[int]:
    return [*sizes[:place], size, *sizes[place:]]


def attended_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    outputs: Tensor,
    logarithms: Tensor,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values, all [B, heads, T, d], from that of the outputs.

    ONNX lacks this kernel, which torch has without dropout alone. A mask is what is added to the scores.
    """
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.matmul(query, key.transpose(-2, -1)) * factor
    if causal:
        scores = scores + torch.full(scores.shape[-2:], -torch.inf, device=scores.device).triu(1)
    if attn_mask is not None:
        scores = scores + attn_mask
    shares = torch.softmax(scores, -1)
    of_shares = torch.matmul(gradient, value.transpose(-2, -1))
    of_scores = shares * (of_shares - (shares * of_shares).sum(-1, keepdim=True)) * factor
    return (
        torch.matmul(of_scores, key),
        torch.matmul(of_scores.transpose(-2, -1), query),
        torch.matmul(shares.transpose(-2, -1), gradient),
    )
