"""A pooling before a ReLU instead of after it."""

from collections.abc import Callable

import onnx
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.training.step_graphs.drawing.drawn_pools import DrawnPools
from edge_client.training.step_graphs.drawing.step import draw_step

POOLED: dict[str, Callable[[Tensor], Tensor]] = {
    "function": lambda x: functional.max_pool2d(torch.relu(x), 3, stride=2, padding=1),
    "modules": nn.Sequential(nn.ReLU(), nn.MaxPool2d(2)),
    "in place": lambda x: functional.max_pool2d(functional.relu(x * 1, inplace=True), 2),
    "method": lambda x: functional.max_pool2d(x.relu(), 2, ceil_mode=True),
    "both are read": lambda x: functional.max_pool2d(r := torch.relu(x), 1) + r,
}


@pytest.mark.parametrize("pooled", POOLED.values(), ids=POOLED)
def test_numbers_and_gradients_are_the_same_with_ties_and_zeros(pooled) -> None:
    torch.manual_seed(0)
    numbers = torch.randint(-2, 3, (4, 3, 9, 9)).float()
    found = []
    for mode in (None, DrawnPools()):
        x = numbers.clone().requires_grad_(True)
        if mode is None:
            outputs = pooled(x)
        else:
            with mode:
                outputs = pooled(x)
        outputs.backward(torch.arange(outputs.numel()).reshape(outputs.shape).float())
        found.append((outputs, x.grad))
    (expected, gradient), (ours, our_gradient) = found
    assert torch.equal(ours, expected)
    assert torch.equal(our_gradient, gradient)


def test_a_graph_has_the_relu_of_the_pooled_maps() -> None:
    module = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.LazyLinear(3))
    module(torch.zeros(1, 1, 10, 10))
    graph = onnx.load_from_string(draw_step(module, (1, 10, 10))).graph
    pools = {node.output[0] for node in graph.node if node.op_type == "MaxPool"}
    (relu,) = (node for node in graph.node if node.op_type == "Relu")
    assert relu.input[0] in pools
