"""Training changes of low rank: as by hand, as LoRA's own formulation, and repeatable to the bit."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from edge_client.compression.low_rank import draw_factors
from edge_client.data.dataset import make_labelled_data
from edge_client.data.sources import load_source
from edge_client.training import low_rank
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.loop import Training, train
from edge_client.training.results import EpochReport, TrainingResult, TrainingStopped
from schemas.strategy import Adapters, Component, TrainingPlan

DATA = load_source("digits").subset(range(60))
ADAPTERS = Adapters(rank=3, arrays=("0.weight", "4.weight"))
TRAINED = (*ADAPTERS.arrays, "4.bias")


def network() -> nn.Module:
    """A convolution of one position, which is adapted, one that is frozen, and an adapted linear layer."""
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 6, 1), nn.ReLU(), nn.Conv2d(6, 4, 3, stride=2), nn.Flatten(), nn.Linear(36, 10)
    )


def plan(**more: object) -> TrainingPlan:
    fields = {"batch_size": 16, "seed": 5, "local_epochs": 2, "learning_rate": 0.05, **more}
    return TrainingPlan.model_validate(fields)


def trained(module: nn.Module, how: TrainingPlan, **more: object) -> TrainingResult:
    return train(module, DATA, how, trained=TRAINED, adapters=ADAPTERS, **more)  # type: ignore[arg-type]


def weights(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy().copy() for name, tensor in module.named_parameters()}


def test_one_step_by_hand() -> None:
    # Weights of 0, input 1, label 0, two classes: the gradient of the weights is (-1/2, +1/2). The left
    # factor is 0, so the right one, a, has no gradient; the left one has a times that, and a step of rate 1
    # gives (a/2, -a/2): the weights become a^2/2, -a^2/2.
    module = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    nn.init.zeros_(module[1].weight)
    data = make_labelled_data(np.ones((1, 1, 1, 1), np.float32), np.zeros(1), class_names=("a", "b"))
    adapters = Adapters(rank=1, arrays=("1.weight",))
    result = train(
        module, data, TrainingPlan(learning_rate=1.0, seed=3), trained=adapters.arrays, adapters=adapters
    )
    a = draw_factors((2, 1), 1, 3, "1.weight").right.item()
    np.testing.assert_allclose(module[1].weight.detach().numpy(), [[a * a / 2], [-a * a / 2]], rtol=1e-6)
    np.testing.assert_allclose(result.factors["1.weight"].left, [[a / 2], [-a / 2]], rtol=1e-6)


class _Added(nn.Module):
    """W + B A as the paper has it, with factors that autograd sees."""

    def __init__(self, shape: tuple[int, ...], name: str, seed: int) -> None:
        super().__init__()
        left, right = draw_factors(shape, ADAPTERS.rank, seed, name)
        self.left, self.right = nn.Parameter(torch.from_numpy(left)), nn.Parameter(torch.from_numpy(right))

    def forward(self, weight: Tensor) -> Tensor:
        return weight.detach() + (self.left @ self.right.flatten(1)).view_as(weight)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_it_is_what_autograd_makes_of_the_two_factors(optimizer: str) -> None:
    how = plan(optimizer=optimizer, learning_rate=0.1 if optimizer == "sgd" else 0.02)
    ours, theirs = network(), network()
    result = trained(ours, how)
    for name in ADAPTERS.arrays:
        layer = theirs.get_submodule(name[0])
        parametrize.register_parametrization(
            layer, "weight", _Added(tuple(layer.weight.shape), name, how.seed)
        )
    learned = [name for name, _ in theirs.named_parameters() if name.endswith(("left", "right"))]
    train(theirs, DATA, how, trained=[*learned, "4.bias"])
    expected = {name: theirs.get_submodule(name[0]).weight.detach().numpy() for name in ADAPTERS.arrays}
    start, found = weights(network()), weights(ours)
    for name, pair in result.factors.items():
        assert np.abs(found[name] - start[name]).max() > 1e-4
        np.testing.assert_allclose(found[name], expected[name], rtol=0, atol=1e-5)
        np.testing.assert_allclose(start[name] + pair.rows(0, len(pair.left)), found[name], rtol=0, atol=1e-6)
    assert (found["2.weight"] == start["2.weight"]).all()
    assert (found["0.bias"] == start["0.bias"]).all()


def test_the_optimizer_holds_the_factors_only_and_nothing_stays_on_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[tuple[int, ...], ...]] = []
    step = Training.take_step

    def looking(training: Training, radius: float, examples: object) -> Tensor:
        plain = step(training, radius, examples)  # type: ignore[arg-type]
        assert all(w.grad is None for n, w in training.module.named_parameters() if n in ADAPTERS.arrays)
        seen.append(tuple(tuple(weight.shape) for weight in training.optimizer.parameters))
        return plain

    monkeypatch.setattr(Training, "take_step", looking)
    module = network()
    trained(module, plan(optimizer="adam"))
    assert set(seen) == {((10,), (6, 1), (1, 1), (10, 3), (3, 36))}
    assert not any(weight._post_accumulate_grad_hooks for weight in module.parameters())
    assert all(weight.requires_grad for weight in module.parameters())


@dataclass(frozen=True)
class _Way:
    """One way to the same training; objectives that correct gradients see those of whole weights."""

    micro_batch: int | None = None
    at_once: bool = True


@pytest.mark.parametrize("way", [_Way(micro_batch=5), _Way(at_once=False)], ids=str)
def test_gradients_in_parts_or_at_the_end_of_the_step_are_the_same(
    way: _Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, other = network(), network()
    trained(usual, plan())
    if not way.at_once:
        monkeypatch.setattr(
            "edge_client.training.loop.make_low_rank",
            lambda adapters, *_, **__: low_rank.LowRank(adapters, at_once=False),
        )
    trained(other, plan(), micro_batch=way.micro_batch)
    for name, array in weights(usual).items():
        np.testing.assert_allclose(weights(other)[name], array, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "more",
    [
        {"sam_radius": 0.05},
        {"objectives": (Component(name="prox", options={"mu": 0.5}),)},
        {"objectives": (Component(name="scaffold"),)},
    ],
    ids=["sam", "prox", "scaffold"],
)
def test_objectives_and_sharp_steps_reach_the_factors(more: dict[str, object]) -> None:
    plain, other = network(), network()
    trained(plain, plan(local_epochs=3))
    result = trained(other, plan(local_epochs=3, **more), received={"control": {}})
    start, found = weights(network()), weights(other)
    for name, pair in result.factors.items():
        np.testing.assert_allclose(start[name] + pair.rows(0, len(pair.left)), found[name], rtol=0, atol=1e-6)
        if "scaffold" not in str(more):  # without control variates it is plain SGD
            assert (found[name] != weights(plain)[name]).any()


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_training_that_resumes_ends_in_the_same_bytes(optimizer: str, tmp_path: Path) -> None:
    how = plan(optimizer=optimizer, momentum=0.9 * (optimizer == "sgd"), local_epochs=3)
    whole = network()
    expected = trained(whole, how)
    reports: list[EpochReport] = []

    def checkpoint() -> EpochCheckpoint:
        return EpochCheckpoint(tmp_path / "epochs.safetensors", "this", interval_s=0.0)

    with pytest.raises(TrainingStopped):
        trained(
            network(),
            how,
            on_epoch=reports.append,
            should_stop=lambda: len(reports) == 1,
            checkpoint=checkpoint(),
        )
    again = network()
    found = trained(again, how, on_epoch=reports.append, checkpoint=checkpoint())
    assert [report.epoch for report in reports] == [1, 2, 3]
    for name, array in weights(whole).items():
        assert weights(again)[name].tobytes() == array.tobytes()
    for name, pair in expected.factors.items():
        assert found.factors[name].left.tobytes() == pair.left.tobytes()
        assert found.factors[name].right.tobytes() == pair.right.tobytes()
