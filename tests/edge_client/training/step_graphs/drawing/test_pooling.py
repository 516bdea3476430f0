"""Gradients of max pooling without indices: of equal maxima the first one has the gradient, as with torch."""

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.step import draw_step


class Pooled(nn.Module):
    """Every pixel [H, W] has a factor of its own, whose gradient shows which pixels were chosen."""

    def __init__(self, side: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(side, side))
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.max_pool2d(x * self.factors, self.kernel, stride=self.stride)
        return torch.stack([pooled.square().sum((1, 2, 3)), pooled.sum((1, 2, 3))], dim=1) / 100


@pytest.mark.parametrize(
    ("side", "kernel", "stride", "has_indices"),
    [(8, 2, 2, False), (7, 2, 2, False), (9, 3, 3, False), (8, 3, 2, True)],
    ids=["tiles", "tiles and a rest", "tiles of nine", "overlapping windows"],
)
def test_the_first_of_equal_maxima_has_the_gradient(
    side: int, kernel: int, stride: int, has_indices: bool
) -> None:
    module = Pooled(side, kernel, stride)
    data = draw_step(module, (1, side, side))
    poolings = [node for node in onnx.load_from_string(data).graph.node if node.op_type == "MaxPool"]
    assert any(len(node.output) > 1 for node in poolings) == has_indices
    # Whole numbers from 0 to 2: most windows have several maxima.
    inputs = np.random.default_rng(5).integers(0, 3, (6, 1, side, side)).astype(np.float32)
    labels = np.arange(6) % 2
    functional.cross_entropy(module(torch.from_numpy(inputs)), torch.from_numpy(labels)).backward()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    given = {names.INPUTS: inputs, names.LABELS: labels, "factors": np.ones((side, side), np.float32)}
    wanted = [value.name for value in session.get_inputs()]
    (gradient,) = session.run([names.GRADIENT + "factors"], {name: given[name] for name in wanted})
    assert module.factors.grad is not None
    np.testing.assert_allclose(gradient, module.factors.grad.numpy(), rtol=1e-5, atol=1e-7)
