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

POOLINGS: tuple[tuple[int, Mapping[str, Any]], ...] = (
    (8, {"kernel_size": 2}),
    (7, {"kernel_size": 2}),
    (9, {"kernel_size": 3, "padding": 1}),
    (8, {"kernel_size": 3, "stride": 2}),
    (8, {"kernel_size": 3, "stride": 2, "padding": 1}),
    (6, {"kernel_size": 3, "stride": 1, "padding": 1}),
    (9, {"kernel_size": (1, 2), "stride": (3, 2)}),
    (9, {"kernel_size": 2, "stride": 2, "dilation": 3}),
    (8, {"kernel_size": 3, "stride": 2, "ceil_mode": True}),
)
"""The sides of pictures, and how they are pooled."""
SHAPE = (1, 9, 9)


class Pooled(nn.Module):
    """Pools a corner of the picture in each way.

    There, every pixel [H, W] has a factor of its own, whose gradient shows which pixels were chosen.
    """

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ParameterList(torch.ones(side, side) for side, _ in POOLINGS)

    def forward(self, x: Tensor) -> Tensor:
        pooled = [
            functional.max_pool2d(x[..., :side, :side] * factors, **windows)
            for (side, windows), factors in zip(POOLINGS, self.factors, strict=True)
        ]
        squares = sum(part.square().sum((1, 2, 3)) for part in pooled)
        return torch.stack([squares, sum(part.sum((1, 2, 3)) for part in pooled)], dim=1) / 900


@pytest.fixture(scope="module")
def gradients() -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The gradients of all factors by a graph, and by torch."""
    module = Pooled()
    data = draw_step(module, SHAPE)
    poolings = [node for node in onnx.load_from_string(data).graph.node if node.op_type == "MaxPool"]
    assert all(len(node.output) == 1 for node in poolings)
    # Whole numbers from 0 to 2: most windows have several maxima.
    inputs = np.random.default_rng(5).integers(0, 3, (6, *SHAPE)).astype(np.float32)
    labels = np.arange(6) % 2
    functional.cross_entropy(module(torch.from_numpy(inputs)), torch.from_numpy(labels)).backward()
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    factors = {name: factor.detach().numpy() for name, factor in module.named_parameters()}
    given = {names.INPUTS: inputs, names.LABELS: labels, **factors}
    wanted = [value.name for value in session.get_inputs()]
    found = session.run([names.GRADIENT + name for name in factors], {name: given[name] for name in wanted})
    theirs = {name: factor.grad.numpy() for name, factor in module.named_parameters()}
    return dict(zip(factors, found, strict=True)), theirs


def test_the_first_of_equal_maxima_has_the_gradient(
    gradients: tuple[dict[str, np.ndarray], dict[str, np.ndarray]],
) -> None:
    # In one test: the graph of all poolings takes seconds to draw.
    for place, pooling in enumerate(POOLINGS):
        ours, theirs = (found[f"factors.{place}"] for found in gradients)
        assert np.any(theirs), pooling
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7, err_msg=str(pooling))
