"""Sharpness-aware steps take their gradient at weights that were moved uphill."""

import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.dataset import make_labelled_data
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.epochs import epoch_radius
from edge_client.training.loop import train
from edge_client.training.optimizers import OPTIMIZERS
from edge_client.training.results import EpochReport, TrainingStopped
from edge_client.training.shared_forward import step_gradients, uphill
from schemas.strategy import TrainingPlan, TrainingSettings


class Quartic(nn.Module):
    """a^4 / 4 + b^4 / 4, at a = 1 and b = 2."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.tensor(1.0)), nn.Parameter(torch.tensor(2.0))

    def forward(self) -> Tensor:
        return self.a**4 / 4 + self.b**4 / 4


def gradients(module: Quartic, radius: float) -> tuple[float, float, float]:
    """The loss, and the gradients of a and b."""

    def passes() -> Tensor:
        loss = module()
        loss.backward()
        found: Tensor = loss.detach()
        return found

    optimizer = OPTIMIZERS["sgd"](list(module.parameters()), TrainingPlan())
    loss = step_gradients(module, optimizer, passes, radius=radius)
    a, b = (float(weight.grad) for weight in module.parameters() if weight.grad is not None)
    return float(loss), a, b


def test_the_gradient_is_that_at_the_moved_weights() -> None:
    # The gradients 1 and 8 have the norm sqrt(65); a and b move along them by 0.5 in all.
    module, step = Quartic(), 0.5 / math.sqrt(65)
    loss, a, b = gradients(module, 0.5)
    assert (a, b) == pytest.approx(((1 + step) ** 3, (2 + 8 * step) ** 3))
    assert loss == pytest.approx(4.25)
    assert [weight.item() for weight in module.parameters()] == [1.0, 2.0]


def test_without_a_radius_the_step_is_plain() -> None:
    assert gradients(Quartic(), 0.0) == (4.25, 1.0, 8.0)


def test_at_a_minimum_nothing_moves() -> None:
    module = Quartic()
    nn.init.zeros_(module.a)
    nn.init.zeros_(module.b)
    assert gradients(module, 0.5) == (0.0, 0.0, 0.0)


def test_weights_and_buffers_are_as_before_also_after_an_error() -> None:
    weight, buffer = torch.tensor([3.0, 4.0]), torch.tensor([1.0])

    def fails() -> None:
        with uphill([weight], [weight.clone()], [buffer], radius=1.0):
            assert torch.allclose(weight, torch.tensor([3.6, 4.8]))
            buffer.add_(1)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert weight.tolist() == [3.0, 4.0]
    assert buffer.tolist() == [1.0]


def test_running_statistics_are_those_of_the_weights_themselves() -> None:
    found = []
    for radius in (0.0, 0.5):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 1))
        inputs, passed = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 0.0]]), list[int]()

        def passes(module: nn.Module = module, inputs: Tensor = inputs, passed: list[int] = passed) -> Tensor:
            loss = module(inputs).square().mean()
            loss.backward()
            passed.append(1)
            mean: Tensor = loss.detach()
            return mean

        optimizer = OPTIMIZERS["sgd"](list(module.parameters()), TrainingPlan())
        step_gradients(module, optimizer, passes, radius=radius)
        assert len(passed) == (2 if radius else 1)
        found.append({name: buffer.clone() for name, buffer in module.named_buffers()})
    assert found[0].keys() == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@pytest.mark.parametrize(
    ("epochs", "sharp"),
    [(0, ""), (1, "P"), (2, "PP"), (3, "SP"), (4, "SPP"), (5, "SSP"), (6, "SSPP"), (7, "SSSP")],
)
def test_the_first_epochs_are_sharp_and_the_last_is_plain(epochs: int, sharp: str) -> None:
    plan, done, found = TrainingPlan(local_epochs=epochs, sam_radius=0.1), 0, ""
    while done < epochs:
        radius = epoch_radius(plan, done)
        assert radius in (0.0, 0.1)
        found += "S" if radius else "P"
        done += 2 if radius else 1
    assert found == sharp
    assert epoch_radius(TrainingPlan(local_epochs=5), 0) == 0.0


def test_a_sharp_epoch_counts_as_two() -> None:
    torch.manual_seed(0)
    module, reports = nn.Sequential(nn.Flatten(), nn.Linear(2, 3)), list[EpochReport]()
    images = np.random.default_rng(0).normal(size=(10, 1, 1, 2)).astype(np.float32)
    data = make_labelled_data(images, np.arange(10) % 3, class_names=("a", "b", "c"))
    plan = TrainingPlan(batch_size=4, local_epochs=4, learning_rate=0.1, sam_radius=0.1)
    result = train(module, data, plan, on_epoch=reports.append)
    # A sharp epoch of three steps, and two plain ones.
    assert [(report.epoch, report.epochs) for report in reports] == [(1, 3), (2, 3), (3, 3)]
    assert (result.metrics.epochs, result.metrics.steps) == (4, 12)


@pytest.mark.parametrize("stop", [1, 3])
def test_a_training_that_goes_on_takes_the_same_steps(tmp_path: Path, stop: int) -> None:
    images = np.random.default_rng(0).normal(size=(10, 1, 1, 2)).astype(np.float32)
    data = make_labelled_data(images, np.arange(10) % 3, class_names=("a", "b", "c"))
    plan = TrainingPlan(batch_size=4, local_epochs=7, learning_rate=0.1, sam_radius=0.1)

    def trained(checkpoint: EpochCheckpoint | None = None, until: int = 9) -> dict[str, Tensor]:
        torch.manual_seed(0)
        module, done = nn.Sequential(nn.Flatten(), nn.Linear(2, 3)), list[int]()
        stopped = partial(lambda: bool(done) and done[-1] >= until)
        train(
            module,
            data,
            plan,
            on_epoch=lambda report: done.append(report.epoch),
            should_stop=stopped,
            checkpoint=checkpoint,
        )
        return module.state_dict()

    whole = trained()
    checkpoint = EpochCheckpoint(tmp_path / "epochs", "a task", interval_s=0)
    with pytest.raises(TrainingStopped):
        trained(checkpoint, until=stop)
    resumed = trained(checkpoint)
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


@pytest.mark.parametrize("radius", [-0.1, math.inf, math.nan])
def test_an_impossible_radius_is_refused(radius: float) -> None:
    with pytest.raises(ValueError, match=r"sam.radius"):
        TrainingSettings(sam_radius=radius)


def test_a_plan_of_plain_steps_is_written_as_before() -> None:
    assert "sam_radius" not in TrainingPlan().model_dump()
    assert TrainingPlan(sam_radius=0.1).model_dump()["sam_radius"] == 0.1
