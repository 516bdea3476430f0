"""Convolutions in the frequency domain, beside torch's own."""

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing import frequencies
from edge_client.training.step_graphs.drawing.step import draw_step

PLAIN = frequencies.Geometry((1, 1), (2, 2), (1, 1), 1)


def difference(found: Tensor, expected: Tensor | None) -> float:
    assert expected is not None
    return float((found - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize("kernel", [(5, 5), (7, 5), (3, 9)])
@pytest.mark.parametrize("size", [(16, 16), (14, 9), (5, 8), (1, 2)])
def test_it_is_torchs_convolution_with_its_gradients(size, kernel) -> None:
    torch.manual_seed(0)
    maps = torch.randn(3, 4, *size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(5, 4, *kernel, dtype=torch.float64, requires_grad=True)
    expected = functional.conv2d(maps, weight, padding=[side // 2 for side in kernel])
    gradient = torch.randn_like(expected)
    expected.backward(gradient)
    single, kernels, ours = (tensor.detach().float() for tensor in (maps, weight, gradient))
    assert difference(frequencies.convolve_maps(single, kernels), expected) < 2e-6
    assert difference(frequencies.gradient_of_maps(ours, kernels), maps.grad) < 2e-6
    assert difference(frequencies.gradient_of_kernel(ours, single, kernels), weight.grad) < 2e-6


def test_large_kernels_of_many_channels_on_small_maps_belong_there() -> None:
    assert frequencies.is_faster((32, 19, 16, 16), (19, 19, 5, 5), PLAIN)
    # The convolutions of `two-nn`.
    assert not frequencies.is_faster((32, 1, 28, 28), (32, 1, 5, 5), PLAIN)
    assert frequencies.is_faster((32, 32, 14, 14), (64, 32, 5, 5), PLAIN)
    assert not frequencies.is_faster((32, 3, 32, 32), (64, 3, 5, 5), PLAIN)
    assert not frequencies.is_faster((32, 16, 256, 256), (16, 16, 5, 5), PLAIN)


@pytest.mark.parametrize(
    ("kernel", "geometry"),
    [
        ((64, 64, 3, 3), ((1, 1), (1, 1), (1, 1), 1)),
        ((64, 64, 5, 5), ((2, 2), (2, 2), (1, 1), 1)),
        ((64, 64, 5, 5), ((1, 1), (0, 0), (1, 1), 1)),
        ((64, 64, 5, 5), ((1, 1), (4, 4), (2, 2), 1)),
        ((64, 32, 5, 5), ((1, 1), (2, 2), (1, 1), 2)),
        ((64, 64, 5), ((1,), (2,), (1,), 1)),
    ],
)
def test_other_convolutions_stay(kernel, geometry) -> None:
    assert not frequencies.is_faster((32, 64, 16, 16)[: len(kernel)], kernel, frequencies.Geometry(*geometry))


def test_a_graph_has_products_in_place_of_such_a_convolution_and_the_pictures_in_phases() -> None:
    module = nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 24, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(4),
    )
    module(torch.zeros(1, 1, 12, 12))
    graph = onnx.load_from_string(draw_step(module, (1, 12, 12))).graph
    kernels = [node.input[1] for node in graph.node if node.op_type == "Conv"]
    assert kernels
    assert "3.weight" not in kernels
    assert not [node for node in graph.node if node.op_type == "ConvTranspose"]
    assert names.LOSS in {value.name for value in graph.output}
    # The second convolution has pooling as before.
    assert [node.op_type for node in graph.node].count("MaxPool") == 2
    assert "Max" in {node.op_type for node in graph.node}
