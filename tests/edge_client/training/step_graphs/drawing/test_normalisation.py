"""Normalisation in a step graph has torch's outputs, gradients and running statistics."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from edge_client.training.step_graphs.drawing.normalisation import (
    grouped_backward,
    normalise_batch,
    normalise_groups,
    normalised_backward,
)

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "maps": (lambda: nn.BatchNorm2d(3), (5, 3, 4, 2)),
    "vectors": (lambda: nn.BatchNorm1d(3), (5, 3)),
    "signals": (lambda: nn.BatchNorm1d(3, momentum=0.3, eps=0.1), (2, 3, 7)),
    "without weights": (lambda: nn.BatchNorm2d(3, affine=False), (5, 3, 4, 2)),
    "without running statistics": (lambda: nn.BatchNorm2d(3, track_running_stats=False), (5, 3, 4, 2)),
    "frozen": (lambda: nn.BatchNorm2d(3).eval(), (5, 3, 4, 2)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_passes_are_torchs(name: str) -> None:
    torch.manual_seed(0)
    layer, x, gradient = LAYERS[name][0](), *torch.randn(2, *LAYERS[name][1], dtype=torch.float64)
    layer.double()
    for tensor in (*layer.parameters(), *(b for b in layer.buffers() if b.is_floating_point())):
        tensor.data.uniform_(0.5, 1.5)
    running = [None if b is None else b.clone() for b in (layer.running_mean, layer.running_var)]
    training = layer.training or running[0] is None
    x.requires_grad_()
    expected = layer(x)
    leaves = [x, *layer.parameters()]
    gradients = torch.autograd.grad(expected, leaves, gradient)

    weight, bias = layer.weight, layer.bias
    outputs, mean, deviation = normalise_batch(x, weight, bias, *running, training, layer.momentum, layer.eps)
    found = normalised_backward(
        gradient, x, weight, *running, mean, deviation, training, layer.eps, [True] * 3
    )
    close(outputs, expected)
    for ours, known in zip(found, gradients, strict=False):
        close(ours, known)
    for after, known in zip(running, (layer.running_mean, layer.running_var), strict=True):
        assert (after is None) == (known is None)
        if after is not None:
            close(after, known)


@pytest.mark.parametrize(("groups", "shape"), [(2, (5, 6, 4, 2)), (6, (3, 6, 7)), (1, (2, 6))])
@pytest.mark.parametrize("affine", [True, False])
def test_passes_of_groups_are_torchs(groups: int, shape: tuple[int, ...], affine: bool) -> None:
    torch.manual_seed(0)
    layer = nn.GroupNorm(groups, shape[1], eps=0.1, affine=affine).double()
    x, gradient = torch.randn(2, *shape, dtype=torch.float64)
    for parameter in layer.parameters():
        parameter.data.uniform_(0.5, 1.5)
    x.requires_grad_()
    expected = layer(x)
    gradients = torch.autograd.grad(expected, [x, *layer.parameters()], gradient)

    sizes = (shape[0], shape[1], x[0, 0].numel(), groups)
    outputs, mean, deviation = normalise_groups(x, layer.weight, layer.bias, *sizes, layer.eps)
    found = grouped_backward(gradient, x, mean, deviation, layer.weight, *sizes, [True] * 3)
    close(outputs, expected)
    for ours, known in zip(found, gradients, strict=False):
        close(ours, known)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
