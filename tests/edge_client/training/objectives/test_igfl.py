"""IGFL's client optimizer, with numbers computed by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.sources import load_source
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from edge_client.training.objectives.base import TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.objectives.scaffold import Igfl
from schemas.errors import ConfigError
from schemas.strategy import Component, TrainingPlan
from schemas.tensors.arrays import Groups
from tests.edge_client.training.objectives.test_scaffold import OneWeight, array_of

DIGITS = load_source("digits").subset(range(40))


def local_round(
    *,
    start: float,
    group: float,
    own: float,
    steps: int = 2,
    momentum: float = 0.0,
    slope: float | None = None,
) -> tuple[list[float], Groups]:
    """The weights after each step and the kept groups, for rate 0.1, |S| = 4, loss w^2 / 2 or `slope` * w."""
    module, objective = OneWeight(start), Igfl()
    plan = TrainingPlan(learning_rate=0.1, momentum=momentum, participants=4)
    context = TrainingContext(
        plan, received={"last-step": array_of(group)}, kept={"own-step": array_of(own)}, steps=steps
    )
    objective.setup(module, context)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum)
    weights = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = module.w**2 / 2 if slope is None else slope * module.w
        loss.sum().backward()
        objective.correct()
        optimizer.step()
        weights.append(module.w.item())
    return weights, objective.keep()


def test_two_steps_of_algorithm_2_by_hand() -> None:
    # T = 2, |S| = 4, Delta w_i = 0.8, Delta w_ps = 0.4; the gradient of w^2 / 2 is w.
    # From 1: Delta_I = -0.1, Delta_G = (-0.1 - 0.8 / 2) / 4 + 0.4 / 2 = 0.075, w = 0.975.
    # Then Delta_I = -0.0975, Delta_G = (-0.0975 - 0.4) / 4 + 0.2 = 0.075625, w = 0.953125.
    weights, kept = local_round(start=1.0, group=0.4, own=0.8)
    assert weights == pytest.approx([0.975, 0.953125])
    assert kept["own-step"]["w"] == pytest.approx(-0.046875)


def test_the_constant_parts_add_up_over_a_round_for_any_momentum() -> None:
    # With slope 0, Delta_I = 0, so a round moves by Delta w_ps - Delta w_i / |S| = 0.4 - 0.2 = 0.2.
    for momentum in (0.0, 0.5, 0.9):
        for steps in (1, 2, 7):
            weights, _ = local_round(start=1.0, group=0.4, own=0.8, steps=steps, momentum=momentum, slope=0.0)
            assert weights[-1] == pytest.approx(1.2, abs=1e-6)


def test_without_previous_steps_each_client_adds_its_share_of_the_group() -> None:
    # Delta w_i = Delta w_ps = 0: Delta_I + Delta_G = (1 + 1 / 4) * -0.1 * w; from 1: 0.875.
    weights, _ = local_round(start=1.0, group=0.0, own=0.0, steps=1)
    assert weights == pytest.approx([0.875])


def test_a_round_without_steps_keeps_the_previous_step() -> None:
    weights, kept = local_round(start=1.0, group=0.4, own=0.8, steps=0)
    assert weights == []
    assert kept["own-step"]["w"] == pytest.approx(0.8)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def trained(*components: Component, **received: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    module = net()
    plan = TrainingPlan(
        momentum=0.5, weight_decay=0.01, local_epochs=2, participants=3, objectives=components
    )
    train(module, DIGITS, plan, received=received)
    return arrays_of(module)


def test_with_strength_zero_it_is_bit_identical_to_fedavg() -> None:
    # Section 3: with eq. 4 instead of line 4, IGFL is FedAvg; eq. 4 is the round without any Delta_G.
    step = {name: np.ones_like(array) for name, array in arrays_of(net()).items()}
    plain, without = (
        trained(),
        trained(Component(name="igfl", options={"strength": 0.0}), **{"last-step": step}),
    )
    assert all((plain[name] == without[name]).all() for name in plain)
    full = trained(Component(name="igfl"), **{"last-step": step})
    assert any((plain[name] != full[name]).any() for name in plain)


def test_only_the_model_is_sent() -> None:
    plan = TrainingPlan(objectives=(Component(name="igfl"),))
    module = net()
    before = arrays_of(module)
    result = train(module, DIGITS, plan)
    assert result.groups == {}
    step = result.kept["own-step"]
    assert all((step[name] == after - before[name]).all() for name, after in arrays_of(module).items())


@pytest.mark.parametrize("strength", [-1.0, "much", None])
def test_an_impossible_strength_is_refused(strength: float) -> None:
    with pytest.raises(ConfigError, match="'igfl': strength must be a number of at least 0"):
        build_objectives((Component(name="igfl", options={"strength": strength}),))
