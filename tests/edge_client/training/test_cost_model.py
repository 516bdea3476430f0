"""The estimated memory of training."""

import pytest
import torch
from torch import nn

from edge_client.pruning.surgery import arrays_of
from edge_client.training.cost_model import network_cost
from schemas.strategy import Adapters, TrainingPlan
from tests.edge_client.networks import Net


def network() -> Net:
    """A network with three inputs, five hidden units and two outputs."""
    layers = {"first": nn.Linear(3, 5), "norm": nn.BatchNorm1d(5), "last": nn.Linear(5, 2)}
    return Net(lambda net, x: net.last(torch.relu(net.norm(net.first(x)))), **layers)


def plan(**words: object) -> TrainingPlan:
    return TrainingPlan(learning_rate=0.1, batch_size=4, **words)


def test_every_part_is_counted_in_bytes():
    cost = network_cost(network(), (3,)).training(plan(), examples=10)
    # Weights 15 + 5, 5 + 5, 10 + 2 = 42 numbers; running statistics 10 more, one counter of 8 bytes.
    assert cost.gradients == 4 * 42
    assert cost.parameters == 4 * (42 + 10) + 8
    # 10 examples of 3 bytes, their float32 copies, and labels of 8 bytes.
    assert cost.data == 10 * (3 + 12 + 8)
    assert cost.total == sum((cost.parameters, cost.gradients, cost.optimizer, cost.activations, cost.data))


@pytest.mark.parametrize(
    ("words", "copies"),
    [({"momentum": 0.0}, 0), ({"momentum": 0.5}, 1), ({"sam_radius": 0.1}, 1), ({"optimizer": "adam"}, 2)],
)
def test_optimizer_state_is_counted_per_parameter(words, copies):
    cost = network_cost(network(), (3,)).training(plan(**words), examples=10)
    assert cost.optimizer == copies * cost.gradients


def test_activations_grow_with_the_batch_up_to_the_number_of_examples():
    sizes = [
        network_cost(network(), (3,))
        .training(plan().model_copy(update={"batch_size": size}), examples=64)
        .activations
        for size in (8, 16, 24)
    ]
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 0
    few = network_cost(network(), (3,)).training(plan().model_copy(update={"batch_size": 64}), examples=8)
    assert few.activations == sizes[0]


def test_estimating_the_cost_does_not_change_the_network():
    module = network().eval()
    before = {name: array.copy() for name, array in arrays_of(module).items()}
    state = torch.get_rng_state()
    network_cost(module, (3,)).training(plan(), examples=10)
    assert all((array == before[name]).all() for name, array in arrays_of(module).items())
    assert not module.training
    assert torch.equal(torch.get_rng_state(), state)


def test_of_adapted_weights_the_optimizer_has_the_factors_only() -> None:
    module = nn.Sequential(nn.Linear(100, 50), nn.Linear(50, 10))
    adam, adapters = plan(optimizer="adam"), Adapters(rank=2, arrays=("0.weight",))
    trained = ("0.weight", "1.weight", "1.bias")
    whole = network_cost(module, (100,), trained).training(adam, examples=10)
    low = network_cost(module, (100,), trained, adapters).training(adam, examples=10)
    factors = 4 * 2 * (100 + 50)
    # A copy of the adapted weight takes the place of its gradient, and both factors have one.
    assert low.gradients == whole.gradients + factors
    assert low.optimizer == whole.optimizer - 2 * (4 * 5_000 - factors)
    assert low.activations == whole.activations


def test_sharp_steps_keep_adapted_weights_and_their_gradients_besides() -> None:
    module, adapters = nn.Sequential(nn.Linear(100, 50)), Adapters(rank=2, arrays=("0.weight",))
    cost = network_cost(module, (100,), ("0.weight",), adapters)
    plain, sharp = (cost.training(plan(sam_radius=radius), examples=10) for radius in (0.0, 0.1))
    # The weights to go back to, and the copy that the factors change, next to the weight's gradient.
    assert sharp.optimizer - plain.optimizer == 2 * 4 * 5_000
    whole = network_cost(module, (100,), ("0.weight",)).training(plan(sam_radius=0.1), examples=10)
    assert whole.optimizer == 4 * 5_000
