"""Gradients of max pooling without indices: of equal maxima the first one has the gradient, as with torch."""

from collections.abc import Mapping
from typing import Any

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

    def __init__(self, side: int, windows: Mapping[str, Any]) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.ones(side, side))
        self.windows = windows

    def forward(self, x: Tensor) -> Tensor:
        pooled = functional.max_pool2d(x * self.factors, **self.windows)
        return torch.stack([pooled.square().sum((1, 2, 3)), pooled.sum((1, 2, 3))], dim=1) / 100


@pytest.mark.parametrize(
    ("side", "windows"),
    [
        (8, {"kernel_size": 2}),
        (7, {"kernel_size": 2}),
        (9, {"kernel_size": 3, "padding": 1}),
        (8, {"kernel_size": 3, "stride": 2}),
        (8, {"kernel_size": 3, "stride": 2, "padding": 1}),
        (6, {"kernel_size": 3, "stride": 1, "padding": 1}),
        (9, {"kernel_size": (1, 2), "stride": (3, 2)}),
        (9, {"kernel_size": 2, "stride": 2, "dilation": 3}),
        (8, {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
    ],
    ids=lambda value: "-".join(f"{key} {value[key]}" for key in value) if isinstance(value, dict) else None,
)
def test_the_first_of_equal_maxima_has_the_gradient(side: int, windows: Mapping[str, Any]) -> None:
    module = Pooled(side, windows)
    data = draw_step(module, (1, side, side))
    poolings = [node for node in onnx.load_from_string(data).graph.node if node.op_type == "MaxPool"]
    assert all(len(node.output) == 1 for node in poolings)
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
