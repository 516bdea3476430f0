"""Local optimizers: the steps of torch without its compiler, their names, and a warm-up of the rate."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import make_labelled_data
from edge_client.training.epochs import OPTIMIZER_NAMES, step_rate
from edge_client.training.loop import train
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


def test_the_names_are_those_of_the_optimizers() -> None:
    assert set(OPTIMIZER_NAMES) == set(OPTIMIZERS)


def test_the_rate_rises_linearly_and_then_stays() -> None:
    plan = TrainingPlan(learning_rate=0.8, warm_up_steps=3)
    assert [step_rate(plan, taken) for taken in range(5)] == pytest.approx([0.2, 0.4, 0.6, 0.8, 0.8])


def test_without_warm_up_the_rate_is_the_plans() -> None:
    assert [step_rate(TrainingPlan(learning_rate=0.3), taken) for taken in (0, 9)] == [0.3, 0.3]


@pytest.mark.parametrize(
    ("optimizer", "rate", "narrow"),
    [
        ("sgd", 1e-3, 1e-3),
        ("adam", 1e-3, 2e-3),
        ("adamw", 1e-3, 2e-3),
        ("adam", 2e-3, 3e-3),
        ("adam", 0.01, 0.01),
    ],
)
def test_adams_rate_is_over_the_share_of_the_channels_that_a_step_trains_up_to_a_bound(
    optimizer: str, rate: float, narrow: float
) -> None:
    plan = TrainingPlan(optimizer=optimizer, learning_rate=rate, rate_by_width=True)
    assert step_rate(plan, 0, share=0.5) == narrow
    assert step_rate(plan.model_copy(update={"rate_by_width": False}), 0, share=0.5) == rate
    ramped = plan.model_copy(update={"warm_up_steps": 3})
    assert step_rate(ramped, 0, share=0.5) == pytest.approx(narrow / 4)


def moved(plan: TrainingPlan) -> float:
    """How far the plan moves one weight, whose gradient hardly changes."""

    class Ramp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return torch.cat([self.weight.expand(len(inputs), 1), torch.zeros(len(inputs), 1)], dim=1)

    module = Ramp()
    data = make_labelled_data(
        np.zeros((8, 1, 1, 1), np.float32), np.zeros(8, np.int64), class_names=("a", "b")
    )
    train(module, data, plan)
    return float(module.weight.detach())


@pytest.mark.parametrize(("epochs", "share"), [(1, (1 + 2) / 5 / 2), (2, (1 + 2 + 3 + 4) / 5 / 4)])
def test_steps_are_counted_over_epochs(epochs: int, share: float) -> None:
    # Adam's step is its rate where the gradient hardly changes.
    plan = TrainingPlan(optimizer="adam", learning_rate=1e-4, batch_size=4, local_epochs=epochs)
    warm = plan.model_copy(update={"warm_up_steps": 4})
    assert moved(warm) / moved(plan) == pytest.approx(share, rel=1e-2)


def test_a_plan_without_warm_up_is_written_as_before() -> None:
    assert "warm_up_steps" not in TrainingPlan().model_dump()
