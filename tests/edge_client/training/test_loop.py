"""The training loop: repeatable, for data shares of any size, in the orders that torch draws."""

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.sources import load_source
from edge_client.training.epochs import epoch_orders
from edge_client.training.loop import OPTIMIZERS, train
from edge_client.training.results import EpochReport, TrainingStopped
from schemas.errors import ConfigError
from schemas.strategy import TrainingPlan


def linear(*, dropout: float = 0.0) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(64, 10))


def normalised() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 10))


def digits(count: int) -> LabelledData:
    return load_source("digits").subset(range(count))


def weights(module: nn.Module) -> list[np.ndarray]:
    return [tensor.detach().numpy().copy() for tensor in module.state_dict().values()]


def same(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all((a == b).all() for a, b in zip(first, second, strict=True))


def test_one_step_by_hand() -> None:
    # One weight of 0 per class, input 1, label 0, two classes: softmax is 1/2, 1/2, so the gradient is -1/2,
    # +1/2, and a step with rate 0.1 gives 0.05, -0.05. The loss before the step is ln 2.
    module = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    nn.init.zeros_(module[1].weight)
    data = make_labelled_data(np.ones((1, 1, 1, 1), np.float32), np.zeros(1), class_names=("a", "b"))
    result = train(module, data, TrainingPlan(learning_rate=0.1))
    np.testing.assert_allclose(module[1].weight.detach().numpy(), [[0.05], [-0.05]], atol=1e-7)
    assert result.metrics.train_loss == pytest.approx(np.log(2))
    assert (result.metrics.examples, result.metrics.epochs, result.metrics.steps) == (1, 1, 1)
    assert result.metrics.accuracy is None
    assert result.groups == {}


@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_equal_seeds_give_equal_weights(optimizer: str) -> None:
    plan = TrainingPlan(optimizer=optimizer, local_epochs=2, seed=7, momentum=0.5, weight_decay=0.01)
    results = []
    for global_seed in (1, 2):
        module = linear(dropout=0.5)
        torch.manual_seed(global_seed)
        train(module, digits(100), plan)
        results.append(weights(module))
    assert same(*results)
    other = linear(dropout=0.5)
    train(other, digits(100), plan.model_copy(update={"seed": 8}))
    assert not same(results[0], weights(other))


def test_the_global_random_generator_is_not_changed() -> None:
    module = linear(dropout=0.5)
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    train(module, digits(10), TrainingPlan())
    assert torch.rand(1) == expected


def test_digits_are_learned_and_epochs_reported() -> None:
    reports: list[EpochReport] = []
    plan = TrainingPlan(optimizer="adam", learning_rate=0.01, local_epochs=3)
    train(linear(), load_source("digits"), plan, on_epoch=reports.append)
    assert [(report.epoch, report.epochs) for report in reports] == [(1, 3), (2, 3), (3, 3)]
    losses = [report.loss for report in reports if report.loss is not None]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < 0.3


@pytest.mark.parametrize("make", [linear, normalised])
def test_no_examples_leave_the_weights_unchanged(make: type[nn.Module]) -> None:
    module = make()
    before = weights(module)
    metrics = train(module, digits(0), TrainingPlan(local_epochs=2, weight_decay=0.1)).metrics
    assert same(before, weights(module))
    assert (metrics.examples, metrics.epochs, metrics.steps, metrics.train_loss) == (0, 0, 0, None)


def test_no_epochs_leave_the_weights_unchanged() -> None:
    module = linear()
    before = weights(module)
    metrics = train(module, digits(5), TrainingPlan(local_epochs=0)).metrics
    assert same(before, weights(module))
    assert (metrics.examples, metrics.steps) == (5, 0)


def test_a_share_of_one_class_trains() -> None:
    data = load_source("digits")
    zeros = data.subset(np.flatnonzero(data.labels == 0)[:40])
    assert train(normalised(), zeros, TrainingPlan()).metrics.steps == 2


def test_a_last_batch_of_one_is_skipped_by_batch_norm_only() -> None:
    # 33 examples in batches of 32 leave a batch of one.
    assert train(normalised(), digits(33), TrainingPlan()).metrics.steps == 1
    assert train(linear(), digits(33), TrainingPlan()).metrics.steps == 2


def test_a_share_of_one_example_with_batch_norm_is_not_trained() -> None:
    module = normalised()
    before = weights(module)
    metrics = train(module, digits(1), TrainingPlan()).metrics
    assert (metrics.examples, metrics.steps, metrics.train_loss) == (1, 0, None)
    assert same(before, weights(module))


def test_batches_of_one_and_batch_norm_are_refused() -> None:
    with pytest.raises(ConfigError, match="batch-size 1 cannot train"):
        train(normalised(), digits(4), TrainingPlan(batch_size=1))


def test_unknown_optimizers_are_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'adam'"):
        train(linear(), digits(4), TrainingPlan(optimizer="adan"))


def test_diverged_training_is_not_hidden() -> None:
    data = digits(32)
    broken = replace(data, images=np.where(data.images == 0, np.nan, data.images).astype(np.float32))
    module = linear()
    assert train(module, broken, TrainingPlan()).metrics.train_loss is None
    assert not np.isfinite(module[2].weight.detach().numpy()).all()


def test_should_stop_is_called_before_every_batch() -> None:
    calls: list[int] = []

    def should_stop() -> bool:
        calls.append(1)
        return len(calls) == 3

    module = linear()
    before = weights(module)
    with pytest.raises(TrainingStopped):
        train(module, digits(320), TrainingPlan(), should_stop=should_stop)
    assert len(calls) == 3
    assert not same(before, weights(module))


def test_every_example_has_equal_weight_in_the_loss() -> None:
    # With a step of nearly 0, the loss of one epoch in uneven batches (32 + 8) is that of all 40 at once.
    data = digits(40)
    tiny = TrainingPlan(learning_rate=1e-12)
    uneven = train(linear(), data, tiny).metrics.train_loss
    at_once = train(linear(), data, tiny.model_copy(update={"batch_size": 40})).metrics.train_loss
    assert uneven == pytest.approx(at_once, rel=1e-5)


def test_only_the_named_arrays_are_trained_and_statistics_are_kept() -> None:
    module = normalised()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    plan = TrainingPlan(learning_rate=0.1, momentum=0.9, weight_decay=0.1, batch_size=1)
    # With kept statistics a batch may have one example.
    train(module, digits(4), plan, trained=("4.weight",))
    after = module.state_dict()
    assert [name for name in before if not torch.equal(before[name], after[name])] == ["4.weight"]
    assert all(weight.requires_grad for weight in module.parameters())


def test_a_trained_normalisation_measures_only_named_statistics() -> None:
    module = normalised()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    train(
        module,
        digits(8),
        TrainingPlan(learning_rate=0.1),
        trained=("2.bias", "2.running_mean", "2.running_var"),
    )
    after = module.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"2.bias", "2.running_mean", "2.running_var", "2.num_batches_tracked"}


@pytest.mark.parametrize("seed", [0, 1, 12345, 2**31, 2**32 - 1, 2**32 + 7, 2**47 + 3])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 150, 5000])
def test_every_epochs_order_is_torchs(seed: int, count: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    for order in islice(epoch_orders(seed, count), 3):
        assert np.array_equal(order, torch.randperm(count, generator=generator).numpy())


def test_a_large_set_has_torchs_order() -> None:
    generator = torch.Generator().manual_seed(3)
    assert np.array_equal(next(epoch_orders(3, 70_000)), torch.randperm(70_000, generator=generator).numpy())
