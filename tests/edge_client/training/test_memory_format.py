"""Weights are channels-last only while a network runs, and results do not change."""

import contextlib
import copy
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from edge_client.data.dataset import LabelledData
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of
from edge_client.training import evaluation, loop
from edge_client.training.epochs import epoch_orders
from edge_client.training.memory_format import channels_innermost
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec, Preprocessing
from tests.other_networks import Viewed
from tests.slow import slow

SHAPE = (3, 16, 16)
PROBES = torch.zeros(2, *SHAPE)
NETWORKS = [
    ("two-nn", (1, 16, 16)),
    ("cnn", SHAPE),
    ("cnn-group", SHAPE),
    ("resnet20", SHAPE),
    slow("resnet56", SHAPE),
    slow("mobilenet-v2", SHAPE),
]


def network(name: str = "cnn", shape: tuple[int, ...] = SHAPE) -> torch.nn.Module:
    return build_model(ModelSpec(name=name, input_shape=shape, num_classes=4), seed=0)


def pictures(shape: tuple[int, ...]) -> LabelledData:
    inputs = np.random.default_rng(0).random((24, *shape), np.float32)
    return LabelledData(inputs, np.arange(24) % 4, tuple("abcd"), Preprocessing())


def all_contiguous(module: torch.nn.Module) -> bool:
    return all(parameter.is_contiguous() for parameter in module.parameters())


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
def test_convolution_weights_are_channels_last_only_inside_the_context() -> None:
    module = network()
    before, identities = arrays_of(module), [id(weight) for weight in module.parameters()]
    innermost = []

    def work() -> None:
        with channels_innermost(module, PROBES):
            innermost.extend(weight.stride(1) == 1 for weight in module.parameters() if weight.ndim == 4)
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert innermost
    assert all(innermost)
    assert all_contiguous(module)
    assert [id(weight) for weight in module.parameters()] == identities
    assert all(np.array_equal(array, before[name]) for name, array in arrays_of(module).items())


@pytest.mark.parametrize(("name", "shape"), NETWORKS)
def test_gradients_are_the_same_in_both_layouts(name: str, shape: tuple[int, ...]) -> None:
    """In float64, because float32 gradients of a deep network with batch normalisation differ by up to 1%."""
    module = network(name, shape).double()
    inputs, labels = torch.from_numpy(pictures(shape).inputs()).double(), torch.arange(24) % 4

    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        loss = functional.cross_entropy(module(inputs), labels)
        return list(torch.autograd.grad(loss, list(module.parameters())))

    plain = gradients()
    with channels_innermost(module, PROBES):
        laid = gradients()
    for ours, expected in zip(laid, plain, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-6, atol=1e-9)


def test_training_and_evaluation_use_channels_last_with_equal_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = TrainingPlan(optimizer="sgd", learning_rate=0.01, batch_size=8, local_epochs=1, seed=3)

    def outcome() -> tuple[float | None, float | None, dict[str, np.ndarray[Any, Any]]]:
        module = network()
        loss = loop.train(module, pictures(SHAPE), plan).metrics.train_loss
        tested = evaluation.evaluate(module, pictures(SHAPE)).loss
        assert all_contiguous(module)
        return loss, tested, arrays_of(module)

    loss, tested, arrays = outcome()
    laid = list[torch.nn.Module]()

    def unchanged_layout(
        module: torch.nn.Module, _: torch.Tensor, **how: bool
    ) -> contextlib.AbstractContextManager[None]:
        laid.append(module)
        return contextlib.nullcontext()

    monkeypatch.setattr(loop, "channels_innermost", unchanged_layout)
    monkeypatch.setattr(evaluation, "channels_innermost", unchanged_layout)
    plain_loss, plain_tested, plain = outcome()
    assert len(laid) == 2
    assert loss == pytest.approx(plain_loss, rel=1e-4)
    assert tested == pytest.approx(plain_tested, rel=1e-4)
    for key, array in arrays.items():
        np.testing.assert_allclose(array, plain[key], rtol=0, atol=1e-4)


class Batched(Viewed):
    """`view` in training alone, behind a normalisation."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__(shape, classes)
        self.norm, self.norm.weight = torch.nn.BatchNorm2d(8), torch.nn.Parameter(torch.full((8,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.out(x.view(x.size(0), -1) if self.training else x.flatten(1))


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("network_class", [Viewed, Batched])
def test_a_network_whose_view_refuses_the_layout_trains_to_the_bits_of_plain_torch(
    network_class: type[torch.nn.Module],
) -> None:
    torch.manual_seed(0)
    module = network_class(SHAPE, 4)
    plain = copy.deepcopy(module)
    data, plan = pictures(SHAPE), TrainingPlan(learning_rate=0.01, batch_size=24, local_epochs=1, seed=3)
    loop.train(module, data, plan)
    order = next(epoch_orders(plan.seed, 24))
    inputs, labels = torch.from_numpy(data.inputs())[order], torch.arange(24)[order] % 4
    functional.cross_entropy(plain(inputs), labels).backward()
    torch.optim.SGD(plain.parameters(), 0.01).step()
    trained = arrays_of(module)
    assert all(np.array_equal(trained[name], array) for name, array in arrays_of(plain).items())
    assert evaluation.evaluate(module, data).loss == pytest.approx(
        functional.cross_entropy(plain.eval()(torch.from_numpy(data.inputs())), torch.arange(24) % 4).item()
    )


def test_a_trial_changes_no_statistics_and_draws_no_numbers() -> None:
    module = Batched(SHAPE, 4).train()
    before, state = arrays_of(module), torch.get_rng_state()
    with channels_innermost(module, torch.ones(2, *SHAPE)):
        assert all(parameter.is_contiguous() for parameter in module.parameters())
    with channels_innermost(module.eval(), torch.ones(2, *SHAPE)):
        assert module.conv.weight.stride(1) == 1
    assert torch.equal(torch.get_rng_state(), state)
    assert module.norm.num_batches_tracked == 0
    assert all(np.array_equal(array, before[name]) for name, array in arrays_of(module).items())


def test_group_normalisations_behind_frozen_convolutions_train() -> None:
    """They keep the default layout, and only they change."""
    module = network("cnn-group", (3, 16, 16))
    norms = [name for name, _ in module.named_parameters() if "norm" in name]
    before = arrays_of(module)
    loop.train(module, pictures((3, 16, 16)), TrainingPlan(batch_size=4), trained=norms)
    after = arrays_of(module)
    assert norms
    assert {name for name in after if not np.array_equal(after[name], before[name])} == {*norms}
    assert all_contiguous(module)
