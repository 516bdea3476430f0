"""A network in two parts gives what it gives whole, and an example's features have the same bits anywhere."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from edge_client.models.build import build_model
from edge_client.models.fixed_state import sent_tensors
from edge_client.models.frozen_part import BATCH, find_split, split
from edge_client.models.frozen_values import NoSplit
from edge_client.models.modes import evaluating
from schemas.values import ModelSpec
from tests.edge_client.networks import Net

PICTURE = (3, 8, 8)


@pytest.fixture(autouse=True)
def _same_weights() -> None:
    torch.manual_seed(0)


def pictures(count: int) -> Tensor:
    return torch.randn(count, *PICTURE, generator=torch.Generator().manual_seed(1))


def branching() -> Net:
    """A convolution whose output is used by a trained block and by the way around it."""

    def forward(net: Any, inputs: Tensor) -> Any:
        values = torch.relu(net.first(inputs))
        values = torch.relu(values + net.block(torch.relu(values)))
        return net.head(values.mean((2, 3)))

    first, block = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
    return Net(forward, first=first, block=block, head=nn.Linear(4, 2))


def first_and_head(forward: Callable[[Any, Tensor], Any]) -> Net:
    """Two linear layers, 6 to 4 to 2 channels."""
    return Net(forward, first=nn.Linear(6, 4), head=nn.Linear(4, 2))


def convolutional(*between: nn.Module) -> nn.Sequential:
    """A convolution `0`, layers between, and a linear head, the last layer."""
    layers = (nn.Conv2d(3, 4, 3), *between, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    return nn.Sequential(*layers)


def head_of(module: nn.Module) -> tuple[str, str]:
    name = [name for name, _ in module.named_modules()][-1]
    return f"{name}.weight", f"{name}.bias"


@pytest.mark.parametrize("name", ["mobilenet-v2", "vit-tiny"])
def test_a_shipped_network_gives_in_two_parts_what_it_gives_whole(name: str) -> None:
    shape = (3, 16, 16)
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=3)).eval()
    inputs = torch.randn(5, *shape, generator=torch.Generator().manual_seed(1))
    parts = find_split(module, head_of(module), shape)
    assert torch.allclose(parts.rest(parts.features(inputs)), module(inputs), atol=1e-5)


def test_tensors_outside_the_networks_state_are_outside_that_of_its_parts_and_of_their_copies() -> None:
    module = first_and_head(lambda net, x: net.head(torch.relu(net.first(x * net.scale))) * net.scale)
    module.register_buffer("scale", torch.tensor(2.0), persistent=False)
    parts = find_split(module, head_of(module), (6,))
    assert sent_tensors(copy.deepcopy(parts.rest)).keys() == {"head.weight", "head.bias"}
    assert sent_tensors(parts.feature_network).keys() == {"first.weight", "first.bias"}


def test_the_boundary_of_a_head_is_behind_the_pool() -> None:
    module = convolutional(nn.ReLU())
    assert find_split(module, head_of(module), PICTURE).width == 4


def test_a_value_that_goes_around_a_trained_block_is_stored_once() -> None:
    trained = ("block.weight", "block.bias", "head.weight", "head.bias")
    parts, inputs = find_split(module := branching(), trained, PICTURE), pictures(20)
    assert parts.width == 4 * 8 * 8
    assert parts.arrays == {"first.weight", "first.bias"}
    assert torch.allclose(parts.rest(parts.features(inputs)), module(inputs), atol=1e-6)


def test_both_sides_of_a_skip_are_stored_where_both_are_frozen() -> None:
    parts = find_split(branching(), ("head.weight", "head.bias"), PICTURE)
    assert parts.width == 4


def test_a_value_that_weighs_more_than_what_it_is_made_of_is_not_stored() -> None:
    enlarged = convolutional(nn.MaxPool2d(2), nn.Upsample(scale_factor=4), nn.Conv2d(4, 4, 1))
    trained = ("3.weight", "3.bias", "6.weight", "6.bias")
    assert find_split(enlarged, trained, PICTURE).width == 4 * 3 * 3


@pytest.mark.parametrize("name", ["resnet20", "two-nn"])
def test_the_bits_of_features_do_not_depend_on_the_batch(name: str) -> None:
    shape = (3, 16, 16)
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=3))
    inputs = torch.randn(37, *shape, generator=torch.Generator().manual_seed(1))
    parts = find_split(module, head_of(module), shape)
    together, order = parts.features(inputs), torch.randperm(37, generator=torch.Generator().manual_seed(2))
    assert torch.equal(parts.features(inputs[order]), together[order])
    assert torch.equal(torch.cat([parts.features(one[None]) for one in inputs]), together)


def test_a_narrower_network_is_searched_in_few_passes_as_its_frozen_part_is_known() -> None:
    trained = ("block.weight", "block.bias", "head.weight", "head.bias")
    parts, narrower, passed = find_split(module := branching(), trained, PICTURE), branching(), list[int]()
    narrower.load_state_dict(module.state_dict())
    # The search runs a copy, which has the hook as well.
    narrower.first.register_forward_hook(lambda layer, inputs, outputs: passed.append(len(inputs[0])))
    rest, inputs = parts.rest_of("narrower", lambda: narrower), pictures(20)
    assert torch.equal(rest(parts.features(inputs)), parts.rest(parts.features(inputs)))
    assert 0 < sum(passed) < 3 * BATCH


def test_layers_before_the_boundary_that_draw_numbers_end_the_frozen_part() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    assert split(module, head_of(module), PICTURE) is None
    with pytest.raises(NoSplit, match="random in training"):
        find_split(module, head_of(module), PICTURE)


def test_dropout_behind_the_boundary_is_drawn_as_in_the_whole_network() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(144, 2)).train()
    parts, inputs = find_split(module, head_of(module), PICTURE), pictures(4)
    features = parts.features(inputs)
    torch.manual_seed(3)
    whole = module(inputs)
    torch.manual_seed(3)
    assert torch.allclose(parts.rest(features), whole, atol=1e-6)
    with evaluating(module):
        assert torch.allclose(parts.rest(features), module(inputs), atol=1e-6)


def skipped(net: Any, inputs: Tensor) -> Any:
    """A trained block that is left out at random in training, by code of its own."""
    values = net.first(inputs)
    if net.training:
        values = values + net.block(values) * torch.bernoulli(torch.full_like(values[:, :1], 0.5))
    else:
        values = values + net.block(values) / 2
    return net.head(values)


def test_what_code_does_in_training_alone_follows_the_mode_of_the_rest() -> None:
    module = Net(skipped, first=nn.Linear(6, 6), block=nn.Linear(6, 6), head=nn.Linear(6, 2))
    parts = find_split(module, ("block.weight", "block.bias", "head.weight", "head.bias"), (6,))
    inputs = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))
    features = parts.features(inputs)
    for training in (True, False):
        module.train(training)
        parts.rest.train(training)
        torch.manual_seed(3)
        whole = module(inputs)
        torch.manual_seed(3)
        assert torch.allclose(parts.rest(features), whole, atol=1e-6)


def test_a_frozen_block_is_not_random() -> None:
    block = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Dropout(0.5))
    module = nn.Sequential(block, nn.Flatten(), nn.Linear(144, 2))
    assert find_split(module, head_of(module), PICTURE).width == 144


def test_a_normalisation_in_training_ends_the_frozen_part() -> None:
    statistics = ("0.running_mean", "0.running_var")
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 2))
    assert split(module, (*head_of(module), *statistics), PICTURE) is None
    assert find_split(module, head_of(module), PICTURE).width == 144


def test_code_that_looks_at_the_whole_batch_ends_the_frozen_part() -> None:
    centred = first_and_head(lambda net, inputs: net.head(net.first(inputs - inputs.mean(0))))
    assert split(centred, ("head.weight", "head.bias"), (6,)) is None


def test_a_network_with_a_trained_beginning_or_without_a_frozen_array_is_not_split() -> None:
    module = convolutional()
    assert split(module, ("0.bias",), PICTURE) is None
    assert split(module, [name for name, _ in module.named_parameters()], PICTURE) is None


def test_features_that_take_far_more_memory_than_inputs_are_not_made() -> None:
    module = nn.Sequential(nn.Conv2d(3, 65, 1), nn.Flatten(), nn.Linear(65 * 64, 2))
    with pytest.raises(NoSplit, match="4160 features of 192 inputs"):
        find_split(module, head_of(module), PICTURE)


def test_a_network_that_cannot_be_traced_is_not_split_and_says_why() -> None:
    def decide(net: Any, inputs: Tensor) -> Any:
        return net.head(torch.stack([row if row.sum() > 0 else -row for row in net.first(inputs)]))

    with pytest.raises(NoSplit, match="cannot be traced"):
        find_split(first_and_head(decide), ("head.weight", "head.bias"), (6,))
    module = nn.Sequential(nn.Linear(6, 6), first_and_head(decide), nn.Linear(2, 2))
    assert find_split(module, ("2.weight", "2.bias"), (6,)).width == 2


def windowed(net: Any, inputs: Tensor) -> Any:
    """Averages over windows that fit its inputs: `torch.fx` cannot trace it, as it decides by their shape."""
    values = torch.relu(net.first(inputs))
    if values.shape[2] % 2 == 0:
        values = nn.functional.avg_pool2d(values, 2)
    # A mask that every pass makes anew.
    mask = torch.ones(4, 4).tril()
    return net.last(net.drop(values) * mask)


def test_a_block_that_decides_by_shapes_is_divided() -> None:
    block = Net(windowed, first=nn.Conv2d(4, 4, 1), last=nn.Conv2d(4, 4, 1), drop=nn.Dropout(0.5))
    module = nn.Sequential(nn.Conv2d(3, 4, 1), block, nn.Flatten(), nn.Linear(64, 2)).train()
    parts = find_split(module, ("1.last.weight", "1.last.bias", *head_of(module)), PICTURE)
    # Behind the pool, and before what is random.
    assert parts.width == 4 * 4 * 4
    assert parts.arrays == {"0.weight", "0.bias", "1.first.weight", "1.first.bias"}
    inputs = pictures(7)
    for training in (True, False):
        module.train(training)
        parts.rest.train(training)
        features = parts.features(inputs)
        torch.manual_seed(3)
        whole = module(inputs)
        torch.manual_seed(3)
        assert torch.allclose(parts.rest(features), whole, atol=1e-6)
    together, order = parts.features(inputs), torch.arange(6, -1, -1)
    assert torch.equal(parts.features(inputs[order]), together[order])


def test_a_network_that_counts_its_examples_is_not_divided() -> None:
    def count(net: Any, inputs: Tensor) -> Any:
        values = net.first(inputs)
        return net.head(torch.stack([values[place] for place in range(len(values))]))

    assert split(first_and_head(count), ("head.weight", "head.bias"), (6,)) is None


def test_a_network_that_is_another_each_time_is_not_split() -> None:
    def choose(net: Any, inputs: Tensor) -> Any:
        for layer in net.layers:
            inputs = layer(inputs) if random.random() < 0.5 else inputs
        return net.head(inputs)

    module = Net(choose, layers=nn.ModuleList(nn.Linear(6, 6) for _ in range(20)), head=nn.Linear(6, 2))
    assert split(module, ("head.weight", "head.bias"), (6,)) is None


def test_features_follow_the_batch_size_that_code_asks_for() -> None:
    def reshape(net: Any, inputs: Tensor) -> Any:
        return net.head(net.first(inputs).view(inputs.shape[0], -1)).reshape(inputs.size(0), 2)

    module = Net(reshape, first=nn.Conv2d(3, 4, 3), head=nn.Linear(144, 2))
    parts, inputs = find_split(module, ("head.weight", "head.bias"), PICTURE), pictures(7)
    assert torch.allclose(parts.rest(parts.features(inputs)), module(inputs), atol=1e-6)


def test_the_rest_writes_into_no_features_and_shares_the_trained_weights() -> None:
    module = nn.Sequential(nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    parts = find_split(module, ("2.weight", "2.bias"), (6,))
    features = parts.features(torch.ones(3, 6))
    before = features.clone()
    parts.rest(features).sum().backward()
    assert torch.equal(features, before)
    assert module[2].weight.grad is not None
    assert module[0].weight.grad is None


def test_the_search_leaves_the_network_and_the_generators_as_they_were() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2)).train()
    module[1].eval()
    state, drawn = {n: t.clone() for n, t in module.state_dict().items()}, torch.get_rng_state()
    find_split(module, head_of(module), PICTURE)
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())
    assert [part.training for part in module] == [True, False, True, True]
    assert torch.equal(drawn, torch.get_rng_state())
