"""FedMix on the device (Yoon et al. 2021): the expanded loss, averages, and sending them."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.sources import load_source
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from edge_client.training.objectives.base import Batch, TrainingContext
from edge_client.training.objectives.fedmix import Mix
from schemas.errors import ConfigError
from schemas.strategy import Component, TrainingPlan


def network(*, inputs: int = 64, classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, 12), nn.Tanh(), nn.Linear(12, classes))


def digits(count: int = 40) -> LabelledData:
    return load_source("digits").subset(range(count))


def plan(mixing: float | None, *, means: int = 1, seed: int = 3) -> TrainingPlan:
    components = (
        () if mixing is None else (Component(name="mix", options={"mixing": mixing, "means": means}),)
    )
    return TrainingPlan(objectives=components, learning_rate=0.1, batch_size=16, seed=seed)


def pool(image: object, label: object) -> dict[str, dict[str, np.ndarray]]:
    return {"mean-data": {"images": np.float32([image]), "labels": np.float32([label])}}


def mixed_loss(module: nn.Module, inputs: Tensor, labels: Tensor, received, mixing: float) -> Tensor:
    """The loss that training would minimise for one batch."""
    mix = Mix(mixing=mixing)
    mix.setup(module, TrainingContext(plan(mixing), received, inputs=inputs, labels=labels))
    fed = mix.prepare(inputs)
    outputs = module(fed)
    return mix.loss(Batch(module, fed, labels, outputs), functional.cross_entropy(outputs, labels))


def test_the_loss_on_a_linear_model_matches_hand_computation() -> None:
    # Scores are x itself: W = identity. x = (4, 4), y = class 0, l = 1/4, so z = (3, 3): softmax (1/2, 1/2).
    # CE(z, 0) = ln 2. x' = (8, 4), y' = (1/4, 3/4): CE(z, y') = ln 2.
    # dCE/dz = softmax - one-hot = (-1/2, 1/2); its product with x' is -4 + 2 = -2.
    # 3/4 ln 2 + 1/4 ln 2 + 1/4 * -2 = ln 2 - 1/2.
    module = nn.Linear(2, 2, bias=False)
    module.weight.data = torch.eye(2)
    received = pool([8, 4], [0.25, 0.75])
    loss = mixed_loss(module, torch.tensor([[4.0, 4.0]]), torch.tensor([0]), received, 0.25)
    assert loss.item() == pytest.approx(np.log(2) - 0.5, abs=1e-6)


def test_the_slope_of_a_batch_is_the_mean_of_its_examples() -> None:
    # As above with a second example of the other class, whose slope is (1/2, -1/2): 4 - 2 = 2. Their mean is
    # 0, which leaves ln 2.
    module = nn.Linear(2, 2, bias=False)
    module.weight.data = torch.eye(2)
    inputs, labels = torch.full((2, 2), 4.0), torch.tensor([0, 1])
    loss = mixed_loss(module, inputs, labels, pool([8, 4], [0.25, 0.75]), 0.25)
    assert loss.item() == pytest.approx(np.log(2), abs=1e-6)


def test_the_slope_term_matches_finite_differences() -> None:
    module, mixing, step = network(inputs=6, classes=3).double(), 0.3, 1e-5
    inputs, labels = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    image, label = np.linspace(-1, 1, 6, dtype=np.float32), np.float32([0.2, 0.3, 0.5])
    loss = mixed_loss(module, inputs, labels, pool(image, label), mixing)
    z, direction = (1 - mixing) * inputs, step * torch.from_numpy(image).double()

    def plain(at: Tensor, target: Tensor) -> Tensor:
        return functional.cross_entropy(module(at), target)

    slope = (plain(z + direction, labels) - plain(z - direction, labels)) / (2 * step)
    other = plain(z, torch.from_numpy(label).double().expand(5, 3))
    expected = (1 - mixing) * plain(z, labels) + mixing * other + mixing * slope
    assert loss.item() == pytest.approx(expected.item(), abs=1e-7)


def test_the_slope_term_contributes_gradients() -> None:
    # x = (0, 0): z is 0 for any mixing, scores are 0 and softmax is (1/2, 1/2) for any W, so that
    # cross-entropies give W no gradient (its gradient is an outer product with z). The slope term is
    # l (W' (p - e_0)) . x' = l (-1/2, 1/2) W x'; its gradient by W is l (-1/2, 1/2) outer x', with
    # x' = (8, 4) and l = 1/4: ((-1, -1/2), (1, 1/2)).
    module = nn.Linear(2, 2, bias=False)
    module.weight.data = torch.eye(2)
    mixed_loss(module, torch.zeros(1, 2), torch.tensor([0]), pool([8, 4], [1, 0]), 0.25).backward()
    assert module.weight.grad is not None
    assert module.weight.grad.tolist() == [[-1.0, -0.5], [1.0, 0.5]]


def test_terms_of_other_objectives_are_unchanged() -> None:
    module, inputs, labels = network(inputs=6, classes=3), torch.ones(2, 6), torch.tensor([0, 1])
    received = pool(np.ones(6), [0, 0, 1])
    losses = []
    for extra in (0.0, 5.0):
        mix = Mix(mixing=0.3)
        mix.setup(module, TrainingContext(plan(0.3), received, inputs=inputs, labels=labels))
        fed = mix.prepare(inputs)
        outputs = module(fed)
        base = functional.cross_entropy(outputs, labels) + extra
        losses.append(mix.loss(Batch(module, fed, labels, outputs), base).item())
    assert losses[1] - losses[0] == pytest.approx(5, abs=1e-5)


@pytest.mark.parametrize(("mixing", "has_pool"), [(0.0, True), (0.3, False)])
def test_without_mixing_or_without_a_pool_it_is_plain_sgd_exactly(mixing: float, has_pool: bool) -> None:
    received = pool(np.ones((1, 8, 8)), np.full(10, 0.1)) if has_pool else {}
    mixed, plain = network(), network()
    train(mixed, digits(), plan(mixing), received=received)
    train(plain, digits(), plan(None))
    assert all((arrays_of(mixed)[name] == array).all() for name, array in arrays_of(plain).items())


def test_mixing_changes_training_and_is_repeatable() -> None:
    received = {
        "mean-data": {
            "images": np.random.default_rng(0).random((5, 1, 8, 8), np.float32),
            "labels": np.full((5, 10), 0.1, np.float32),
        }
    }
    trained = []
    for mixing in (None, 0.3, 0.3):
        module = network()
        train(module, digits(), plan(mixing), received=received)
        trained.append(arrays_of(module)["1.weight"])
    assert (trained[1] == trained[2]).all()
    assert (trained[0] != trained[1]).any()


def test_a_device_without_epochs_changes_nothing_and_sends_its_means() -> None:
    module, before = network(), arrays_of(network())
    looked = plan(0.3).model_copy(update={"local_epochs": 0})
    result = train(module, digits(), looked, received=pool(np.ones((1, 8, 8)), np.full(10, 0.1)))
    assert all((arrays_of(module)[name] == array).all() for name, array in before.items())
    assert result.groups["mean-data"]["images"].shape == (1, 1, 8, 8)


def test_a_single_mean_covers_all_examples() -> None:
    # Pixels 0, 0.2, 0.4 and 1.0 have the mean 0.4; labels 0, 1, 1 and 2 of 3 have the mean (1/4, 1/2, 1/4).
    images = np.float32([0.0, 0.2, 0.4, 1.0]).reshape(4, 1, 1, 1) * np.ones((1, 1, 2, 2), np.float32)
    data = make_labelled_data(images, np.array([0, 1, 1, 2]))
    sent = train(network(inputs=4, classes=3), data, plan(0.1)).groups["mean-data"]
    assert sent["images"].shape == (1, 1, 2, 2)
    assert sent["images"] == pytest.approx(0.4)
    assert sent["labels"].tolist() == [[0.25, 0.5, 0.25]]


def test_means_cover_all_examples_in_parts_of_nearly_equal_size() -> None:
    # One-hot examples: a part's mean holds 1 / size for each of its examples, so every example is seen once.
    # 7 examples in 3 parts are 3, 2 and 2.
    data = make_labelled_data(
        np.eye(7, dtype=np.float32).reshape(7, 1, 1, 7), np.zeros(7, np.int64) + np.arange(7) % 2
    )
    sent = train(network(inputs=7, classes=2), data, plan(0.1, means=3)).groups["mean-data"]
    rows = sent["images"].reshape(3, 7)
    assert sorted(int((row > 0).sum()) for row in rows) == [2, 2, 3]
    assert ((rows > 0).sum(0) == 1).all()
    assert rows.sum(1) == pytest.approx(1)


@pytest.mark.parametrize(("examples", "rows"), [(1, 0), (2, 1), (3, 1), (5, 2), (40, 4)])
def test_a_single_example_is_never_sent(examples: int, rows: int) -> None:
    groups = train(network(), digits(examples), plan(0.1, means=4)).groups
    assert len(groups["mean-data"]["images"]) == rows if rows else "mean-data" not in groups


def test_means_are_sent_until_they_are_counted() -> None:
    first = train(network(), digits(), plan(0.1))
    assert "mean-data" in first.groups
    uncounted = train(network(), digits(), plan(0.1), kept={})
    assert "mean-data" in uncounted.groups
    counted = train(network(), digits(), plan(0.1), kept=first.kept)
    assert "mean-data" not in counted.groups
    assert counted.kept.keys() == first.kept.keys()


@pytest.mark.parametrize("options", [{"mixing": 1.0}, {"mixing": -0.1}, {"means": 0}, {"means": 65}])
def test_options_out_of_bounds_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="objective 'mix'"):
        Mix(**options)  # type: ignore[arg-type]
