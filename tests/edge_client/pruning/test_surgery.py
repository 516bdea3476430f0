"""Compact networks: the sizes of the paper's table 4, and equality with the full network without channels."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from edge_client.inference.export.graph_export import draw_graph
from edge_client.models.build import build_model
from edge_client.models.graphs import costs
from edge_client.models.graphs.filling import fill
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import cut_axes, expand, expected_shapes, extract, permute
from edge_client.pruning.surgery import arrays_of, compact, count_macs, load_arrays, parameter_count
from schemas.errors import InvariantError
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_client.networks import INPUT, Net, Recipe, SmallNet, images, random_spec, small_net
from tests.slow import slow

LEVELS = (0.7, 0.5, 0.3, 0.1, 0.0)
TABLE_4 = {
    "two-nn": ((1, 28, 28), (498_365, 834_922, 1_145_590, 1_482_147, 1_663_370)),
    "resnet56": ((3, 32, 32), (165_099, 294_260, 407_655, 534_901, 591_322)),
}
# With a, b and c planes in the stages: stem 29a, first stage 3 * (18aa + 4a), second 9ab + 45bb + ab + 14b,
# third 9bc + 45cc + bc + 14c, linear layer 10c + 10. Ratio 0.7 leaves 4, 9 and 19 planes, in pairs 4, 8, 18.
RESNET20 = {
    "resnet20": ((3, 32, 32), (23_580, 68_786, 129_359, 214_293, 272_474)),
    "resnet20-group": ((3, 32, 32), (20_802, 68_786, 127_964, 208_904, 272_474)),
}
SIZES = {**TABLE_4, **RESNET20}
recipes = st.builds(
    Recipe,
    width=st.sampled_from([4, 6, 8]),
    norm=st.sampled_from(["none", "batch", "group"]),
    depthwise=st.booleans(),
    residual=st.booleans(),
    concat=st.booleans(),
    squeeze=st.booleans(),
    head=st.sampled_from(["flatten", "view", "mean"]),
)
seeds = st.integers(0, 10_000)


@pytest.mark.parametrize("name", SIZES)
def test_compact_networks_have_the_sizes_of_table_4_or_those_computed_by_hand(name):
    shape, expected = SIZES[name]
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10))
    channel_map = trace_channels(module, shape)
    sizes = []
    for level in LEVELS:
        smaller = compact(
            module, prefix_spec(group_ratios(entry(name), level, channel_map), channel_map), channel_map
        )
        assert smaller.eval()(torch.zeros(2, *shape)).shape == (2, 10)
        sizes.append(parameter_count(smaller))
    assert tuple(sizes) == expected


# 32 norm groups of two channels, of which ceil(32 p) are cut: 23, 16, 10, 4 and 0.
@pytest.mark.parametrize(("level", "kept"), [*zip(LEVELS, (18, 32, 44, 56, 64), strict=True)])
def test_the_norm_groups_of_a_sub_model_compute_what_they_compute_in_the_full_network(level, kept):
    module = build_model(ModelSpec(name="cnn-group", input_shape=(1, 8, 8), num_classes=10))
    channel_map = trace_channels(module, (1, 8, 8))
    ratios = group_ratios(entry("cnn-group"), level, channel_map)
    smaller = compact(module, prefix_spec(ratios, channel_map), channel_map)
    pictures = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(
        smaller.norm1(smaller.conv1(pictures)), module.norm1(module.conv1(pictures))[:, :kept]
    )
    assert smaller.norm2.num_groups == kept // 2
    assert smaller(pictures).shape == (2, 10)


@settings(max_examples=40, deadline=None)
@given(recipes, seeds)
def test_a_compact_network_equals_the_full_one_with_channels_zeroed(recipe, seed):
    module = small_net(recipe, seed)
    channel_map = trace_channels(module, INPUT)
    spec = random_spec(channel_map, seed)
    smaller = compact(module, spec, channel_map)
    # A layer that reads a channel has it on axis 1: with those weights zero, the channel contributes nothing.
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            kept = cut_axes(channel_map.parameters[name], spec).get(1)
            if kept is not None:
                cut = np.setdiff1d(np.arange(tensor.shape[1]), kept)
                tensor[:, torch.from_numpy(cut)] = 0
        torch.testing.assert_close(smaller(images(seed)), module(images(seed)))


@settings(max_examples=25, deadline=None)
@given(recipes, seeds)
def test_reordering_channels_leaves_the_function_unchanged(recipe, seed):
    module, random = small_net(recipe, seed), np.random.default_rng(seed)
    channel_map = trace_channels(module, INPUT)
    order = {}
    for name, group in channel_map.groups.items():
        starts = random.permutation(group.channels // group.multiple) * group.multiple
        order[name] = (starts[:, None] + np.arange(group.multiple)).ravel().tolist()
    before = module(images(seed))
    load_arrays(module, permute(arrays_of(module), order, channel_map))
    torch.testing.assert_close(module(images(seed)), before, rtol=1e-4, atol=1e-4)


@settings(max_examples=25, deadline=None)
@given(recipes, seeds, st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)))
def test_a_smaller_prefix_is_contained_in_a_larger_one(recipe, seed, ratios):
    module = small_net(recipe, seed)
    channel_map = trace_channels(module, INPUT)
    arrays = arrays_of(module)
    held = []
    for ratio in sorted(ratios):
        spec = prefix_spec(dict.fromkeys(channel_map.groups, ratio), channel_map)
        held.append(expand(extract(arrays, spec, channel_map), spec, channel_map)[1])
    assert all((held[1][name] <= held[0][name]).all() for name in arrays)


def test_extracted_arrays_equal_those_of_the_compact_network():
    module = small_net(Recipe(norm="group", residual=True, concat=True), 1)
    channel_map = trace_channels(module, INPUT)
    spec = random_spec(channel_map, 4)
    held = arrays_of(compact(module, spec, channel_map))
    cut = extract(arrays_of(module), spec, channel_map)
    assert {name: array.shape for name, array in held.items()} == expected_shapes(spec, channel_map)
    assert all(np.array_equal(held[name], cut[name]) for name in cut)


def test_layers_know_their_new_sizes_and_the_original_is_untouched():
    module = SmallNet(Recipe(norm="group", depthwise=True))
    channel_map = trace_channels(module, INPUT)
    smaller = compact(module, SubModelSpec(kept={"stem": (6, 7, 2, 3), "linear": 2}), channel_map)
    assert (smaller.stem.out_channels, smaller.stem.in_channels) == (4, 3)
    assert (smaller.norm.num_channels, smaller.norm.num_groups) == (4, 2)
    assert (smaller.depthwise.groups, smaller.depthwise.in_channels, smaller.depthwise.out_channels) == (
        4,
        4,
        4,
    )
    assert (smaller.linear.in_features, smaller.linear.out_features) == (64, 2)
    assert (smaller.classes.in_features, smaller.classes.out_features) == (2, 5)
    assert (module.stem.out_channels, module.norm.num_groups, module.depthwise.groups) == (8, 4, 8)
    assert module.stem.weight.shape[0] == 8


def test_a_compact_network_trains_and_can_be_traced_again():
    module = SmallNet(Recipe(depthwise=True, residual=True, concat=True))
    spec = SubModelSpec(kept={"stem": 1, "inner": 2, "branch": (5, 0)})
    smaller = compact(module, spec, trace_channels(module, INPUT)).train()
    smaller(torch.rand(4, *INPUT)).sum().backward()
    assert smaller.stem.weight.grad.shape == (1, 3, 3, 3)
    assert trace_channels(smaller, INPUT).groups["branch"].channels == 2


def test_the_empty_spec_gives_an_equal_copy():
    module = small_net(Recipe(), 0)
    copy = compact(module, SubModelSpec(), trace_channels(module, INPUT))
    assert copy is not module
    assert torch.equal(copy(images(0)), module(images(0)))


def test_tied_parameters_stay_tied():
    module = nn.Sequential(
        nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 2)
    )
    module[4].weight = module[2].weight
    channel_map = trace_channels(module, (3,))
    smaller = compact(module, SubModelSpec(kept={"0": (3, 1)}), channel_map)
    assert smaller[4].weight is smaller[2].weight
    assert smaller(torch.zeros(2, 3)).shape == (2, 2)


def test_the_map_of_another_network_is_refused():
    with pytest.raises(InvariantError, match="not in the channel map"):
        compact(SmallNet(Recipe(width=6)), SubModelSpec(), trace_channels(SmallNet(Recipe()), INPUT))


def test_arrays_are_float32_copies_and_load_back():
    module = small_net(Recipe(), 3)
    arrays = arrays_of(module)
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    assert "norm.running_var" in arrays
    assert "norm.num_batches_tracked" not in arrays
    arrays["stem.bias"][:] = 9
    assert module.stem.bias.max() < 9
    load_arrays(module, arrays)
    assert (module.stem.bias == 9).all()


def test_arrays_with_wrong_shapes_or_names_are_refused_before_any_is_written():
    module = small_net(Recipe(), 3)
    arrays = arrays_of(module)
    with pytest.raises(InvariantError, match="expected shape"):
        load_arrays(module, {**arrays, "stem.weight": arrays["stem.weight"] * 0, "stem.bias": np.zeros(9)})
    assert module.stem.weight.any()
    with pytest.raises(InvariantError, match=r"stem\.bias"):
        load_arrays(module, {name: array for name, array in arrays.items() if name != "stem.bias"})


def test_macs_of_convolutions_and_linear_layers_are_counted():
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3, groups=4), nn.Flatten(), nn.Linear(144, 5)
    ).train()
    # 4*8*8 outputs of 3*9 products, 4*6*6 of 9 (depth-wise), 5 of 144: 6,912 + 1,296 + 720.
    assert count_macs(module, INPUT) == 8_928
    assert all(layer.training and not layer._forward_hooks for layer in module)


def attending(attend) -> Net:
    """Two heads of 3 channels for 5 tokens of 6 channels, and values of 4 channels in each head."""

    def forward(net, x):
        layers = (net.query, net.key, net.value)
        return attend(*(layer(x).unflatten(2, (2, -1)).transpose(1, 2) for layer in layers))

    return Net(forward, query=nn.Linear(6, 6), key=nn.Linear(6, 6), value=nn.Linear(6, 8))


ATTENTIONS = {
    "matmul": lambda q, k, v: torch.matmul(torch.matmul(q, k.transpose(2, 3)).softmax(-1), other=v),
    "@": lambda q, k, v: (q @ k.mT).softmax(-1) @ v,
    "bmm": lambda q, k, v: torch.bmm(q[0].bmm(mat2=k[0].mT).softmax(-1), v[0]),
    "function": functional.scaled_dot_product_attention,
    "function by name": lambda q, k, v: functional.scaled_dot_product_attention(value=v, key=k, query=q),
}


@pytest.mark.parametrize("name", ATTENTIONS)
def test_macs_of_attention_are_counted_however_it_is_written(name):
    module = attending(ATTENTIONS[name])
    # Linear layers 5 * 6 * (6 + 6 + 8); two heads of 5 * 5 scores of 3 products and 5 * 4 sums of 5.
    assert count_macs(module, (5, 6)) == 600 + 2 * (75 + 100)


@pytest.mark.parametrize("name", [slow("matmul"), "bmm", "function"])
def test_macs_of_attention_are_counted_in_its_graph(name):
    # `@` and names of arguments lead to the same graphs.
    module = attending(ATTENTIONS[name])
    filled = fill(draw_graph(module.eval(), (5, 6)), arrays_of(module), (5, 6))
    assert costs.count_macs(filled, (5, 6)) == 950


def test_macs_of_a_product_with_a_constant_of_each_head_are_counted():
    weight, shape = nn.Parameter(torch.randn(2, 5, 5)), (10, 5)
    for product in (
        lambda net, x: torch.matmul(net.weight, x.unflatten(1, (2, 5))),
        lambda net, x: torch.matmul(x.unflatten(1, (2, 5)), net.weight),
    ):
        module = Net(product, weight=weight)
        filled = fill(draw_graph(module.eval(), shape), arrays_of(module), shape)
        assert count_macs(module, shape) == costs.count_macs(filled, shape) == 2 * 5 * 5 * 5
