"""Local optimizers compute the same steps as those of torch, without its compiler."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from edge_client.training.optimizers import OPTIMIZERS
from schemas.strategy import TrainingPlan


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3), nn.Linear(3, 2))


def plan(name: str, momentum: float, decay: float) -> TrainingPlan:
    return TrainingPlan(
        optimizer=name, learning_rate=0.1, momentum=momentum, weight_decay=decay, batch_size=5, seed=0
    )


def step(module: nn.Module, number: int, *, whole: bool) -> None:
    """Compute the gradients of a batch, without the last layer unless `whole`."""
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(number))
    (module(inputs) if whole else module[:3](inputs)).square().sum().backward()


REFERENCES = {
    "sgd": lambda parameters, momentum, decay: torch.optim.SGD(
        parameters, lr=0.1, momentum=momentum, weight_decay=decay
    ),
    "adam": lambda parameters, momentum, decay: torch.optim.Adam(
        parameters, lr=0.1, weight_decay=decay, fused=True
    ),
}


@pytest.mark.parametrize(
    ("name", "momentum", "decay"),
    [("sgd", 0.0, 0.0), ("sgd", 0.5, 0.0), ("sgd", 0.9, 0.01), ("adam", 0.0, 0.0), ("adam", 0.0, 0.01)],
)
def test_steps_equal_those_of_torch(name, momentum, decay):
    ours, theirs = network(), network()
    optimizer = OPTIMIZERS[name](ours.parameters(), plan(name, momentum, decay))
    reference = REFERENCES[name](theirs.parameters(), momentum, decay)
    for number in range(4):
        optimizer.zero_grad()
        reference.zero_grad()
        # The last layer has no gradient in the first steps.
        step(ours, number, whole=number >= 2)
        step(theirs, number, whole=number >= 2)
        optimizer.step()
        reference.step()
    for actual, expected in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-7)


def test_training_imports_no_compiler():
    script = """
import sys
import numpy as np
from edge_client.data.dataset import make_labelled_data
from edge_client.models.build import build_model
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec

data = make_labelled_data(np.zeros((4, 1, 4, 4), np.uint8), np.array([0, 1, 0, 1]))
for name in ("sgd", "adam"):
    module = build_model(ModelSpec(name="mlp", input_shape=(1, 4, 4), num_classes=2))
    train(module, data, TrainingPlan(optimizer=name, learning_rate=0.1, batch_size=2, seed=0))
print(sorted(name for name in sys.modules if name in ("torch._dynamo", "torchvision", "onnx", "sympy")))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
