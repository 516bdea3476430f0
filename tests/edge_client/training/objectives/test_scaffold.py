"""SCAFFOLD's client, with numbers computed by hand."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.sources import load_source
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from edge_client.training.objectives.base import TrainingContext
from edge_client.training.objectives.formulas import gradient_mass
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.objectives.scaffold import Scaffold
from schemas.errors import InvariantError
from schemas.strategy import Component, TrainingPlan
from schemas.tensors.arrays import Groups


class OneWeight(nn.Module):
    """A module with one trainable number."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([start]))


Loss = Callable[[Tensor], Tensor]


def array_of(number: float) -> dict[str, np.ndarray]:
    return {"w": np.array([number], np.float32)}


def local_round(
    start: float, loss: Loss, steps: int, *, c: float = 0.0, own: float = 0.0, momentum: float = 0.0
) -> tuple[float, Groups, Groups]:
    """The weight after `steps` steps at rate 0.1, the sent groups and the kept groups."""
    module = OneWeight(start)
    plan = TrainingPlan(learning_rate=0.1, momentum=momentum)
    objective = Scaffold()
    objective.setup(
        module,
        TrainingContext(
            plan, received={"control": array_of(c)}, kept={"own-control": array_of(own)}, steps=steps
        ),
    )
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=momentum)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(module.w).sum().backward()
        objective.correct()
        optimizer.step()
    return module.w.item(), objective.finish(), objective.keep()


def steep(w: Tensor) -> Tensor:
    """w^2: the gradient is 2 w."""
    return w**2


def flat(w: Tensor) -> Tensor:
    """(w - 3)^2 / 2: the gradient is w - 3."""
    return (w - 3) ** 2 / 2


def test_two_steps_by_hand() -> None:
    # c - c_i = 0.5 - 1 = -0.5. From 2: gradient 4 - 0.5 = 3.5, w = 2 - 0.35 = 1.65; gradient 3.3 - 0.5 = 2.8,
    # w = 1.37. c_i+ = 1 - 0.5 + (2 - 1.37) / (2 * 0.1) = 3.65, the mean of the plain gradients 4 and 3.3.
    end, sent, kept = local_round(2.0, steep, 2, c=0.5, own=1.0)
    assert end == pytest.approx(1.37)
    assert kept["own-control"]["w"] == pytest.approx(3.65)
    assert sent["control"]["w"] == pytest.approx(2.65)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_at_the_common_optimum_with_its_gradients_as_controls_no_client_moves(momentum: float) -> None:
    # The mean of w^2 and (w - 3)^2 / 2 is minimal where 2 w + w - 3 = 0, at 1; the gradients there are 2 and
    # -2, with mean c = 0.
    for loss, own in ((steep, 2.0), (flat, -2.0)):
        end, sent, kept = local_round(1.0, loss, 10, c=0.0, own=own, momentum=momentum)
        assert end == 1.0
        assert kept["own-control"]["w"].tolist() == [own]
        assert sent["control"]["w"].tolist() == [0.0]
        # Without its control, each client would move to its own optimum.
        assert abs(local_round(1.0, loss, 10, momentum=momentum)[0] - 1.0) > 0.5


def test_with_momentum_the_control_is_a_weighted_mean_of_gradients() -> None:
    # Momentum 0.5 from 2: gradient 4, w = 1.6; gradient 3.2, velocity 0.5 * 4 + 3.2 = 5.2, w = 1.08. The
    # first gradient counts 1.5 times, the second once: (2 - 1.08) / 0.25 = (1.5 * 4 + 3.2) / 2.5 = 3.68.
    end, _, kept = local_round(2.0, steep, 2, momentum=0.5)
    assert end == pytest.approx(1.08)
    assert kept["own-control"]["w"] == pytest.approx(3.68)


def test_gradient_mass_is_the_sum_of_all_momentum_weights() -> None:
    assert [gradient_mass(steps, 0.0) for steps in (0, 1, 7)] == [0, 1, 7]
    for steps, momentum in itertools.product((1, 2, 5), (0.5, 0.9)):
        direct = sum(momentum**later for first in range(steps) for later in range(steps - first))
        assert gradient_mass(steps, momentum) == pytest.approx(direct)
    assert gradient_mass(0, 0.9) == 0


def test_without_steps_no_control_changes() -> None:
    _, sent, kept = local_round(2.0, steep, 0, c=0.5, own=1.0)
    assert sent == {}
    assert kept["own-control"]["w"].tolist() == [1.0]


def test_without_controls_the_first_round_is_plain_training() -> None:
    module, plain = Normalised(), Normalised()
    plan = TrainingPlan(momentum=0.5, local_epochs=2)
    result = train(module, DIGITS, plan.model_copy(update={"objectives": (Component(name="scaffold"),)}))
    train(plain, DIGITS, plan)
    assert all((array == arrays_of(plain)[name]).all() for name, array in arrays_of(module).items())
    assert list(result.groups) == ["control"]
    assert list(result.kept) == ["own-control"]


DIGITS = load_source("digits").subset(range(64))


class Normalised(nn.Module):
    """A network with trained, frozen and unused weights and running statistics."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.BatchNorm2d(1)
        self.linear = nn.Linear(64, 10)
        self.fixed = nn.Parameter(torch.ones(1), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.linear(self.norm(inputs).flatten(1)) * self.fixed


def test_untrained_parameters_have_a_control_of_zero() -> None:
    module = Normalised()
    result = train(module, DIGITS, TrainingPlan(objectives=(Component(name="scaffold"),)))
    control = result.groups["control"]
    assert {name: array.shape for name, array in control.items()} == {
        name: array.shape for name, array in arrays_of(module).items()
    }
    for name in ("norm.running_mean", "norm.running_var", "fixed", "unused"):
        assert not control[name].any()
    assert control["linear.weight"].any()
    assert all(array.dtype == np.float32 for array in control.values())


def test_a_control_of_another_shape_is_an_error() -> None:
    (objective,) = build_objectives((Component(name="scaffold"),))
    with pytest.raises(InvariantError, match=r"'w': expected shape \(1,\), got \(2,\)"):
        objective.setup(
            OneWeight(1.0),
            TrainingContext(TrainingPlan(), received={"control": {"w": np.zeros(2, np.float32)}}),
        )
