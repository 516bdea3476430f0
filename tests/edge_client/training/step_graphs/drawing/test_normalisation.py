"""Batch normalisation in a step graph has torch's outputs, gradients and running statistics."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from edge_client.training.step_graphs.drawing.normalisation import normalised, normalised_backward

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
    outputs, mean, deviation = normalised(x, weight, bias, *running, training, layer.momentum, layer.eps)
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


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
