"""The learning rate rises over the first steps of each round."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import make_labelled_data
from edge_client.training.epochs import step_rate
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan


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
