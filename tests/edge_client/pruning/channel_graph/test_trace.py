"""Tracing: channel groups, their positions, and pinned channels."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from edge_client.models.build import build_model
from edge_client.models.registry import MODELS
from edge_client.pruning.attention import attach
from edge_client.pruning.channel_graph.trace import trace_channels
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap, Segment
from schemas.values import ModelSpec
from tests.edge_client.networks import INPUT, Net, Recipe, SmallNet


def conv(inputs, outputs, **options):
    return nn.Conv2d(inputs, outputs, 3, padding=1, **options)


def trace(forward, **layers) -> ChannelMap:
    return trace_channels(Net(forward, **layers), INPUT)


def segments(channel_map, name, axis):
    return [(s.channels, s.group, s.repeat) for s in channel_map.parameters[name].axes.get(axis, ())]


@pytest.mark.parametrize("name", MODELS)
def test_every_shipped_network_can_be_traced(name):
    shape, outputs = MODELS[name].example_shape, MODELS[name].example_outputs
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=outputs))
    channel_map = trace_channels(module, shape)
    floats = {n: tuple(t.shape) for n, t in module.state_dict().items() if t.is_floating_point()}
    assert {n: layout.shape for n, layout in channel_map.parameters.items()} == floats
    assert channel_map.groups
    assert not any(
        layout.shape[0] == outputs and 0 in layout.axes for layout in channel_map.parameters.values()
    )


def test_tracing_leaves_the_network_as_it_was():
    module = SmallNet(Recipe()).train()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    trace_channels(module, INPUT)
    assert module.training
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())


def test_a_group_is_named_after_its_first_layer_and_lists_all_that_carry_it():
    channel_map = trace_channels(SmallNet(Recipe(depthwise=True, residual=True, squeeze=True)), INPUT)
    # The stem's channels go through the depth-wise layer, are added to, and are gated.
    assert channel_map.groups["stem"].layers == ("stem", "depthwise", "outer", "up")
    assert list(channel_map.groups) == ["stem", "inner", "down", "linear"]


def test_a_flattened_concatenation_has_segments_of_both_branches():
    channel_map = trace(
        lambda m, x: m.out(torch.cat([m.b(x), m.d(x)], 1).flatten(1)),
        b=conv(3, 12), d=conv(3, 6), out=nn.Linear(18 * 64, 5),
    )  # fmt: skip
    assert segments(channel_map, "out.weight", 1) == [(12, "b", 64), (6, "d", 64)]
    assert segments(channel_map, "out.weight", 0) == []


def test_an_image_in_a_concatenation_is_never_pruned():
    channel_map = trace(lambda m, x: m.out(torch.cat([x, m.a(x)], 1)), a=conv(3, 4), out=conv(7, 2))
    assert segments(channel_map, "out.weight", 1) == [(3, None, 1), (4, "a", 1)]


def test_running_statistics_follow_their_channels():
    channel_map = trace(
        lambda m, x: m.out(m.norm(m.a(x))), a=conv(3, 4), norm=nn.BatchNorm2d(4), out=conv(4, 2)
    )
    for tensor in ("weight", "bias", "running_mean", "running_var"):
        assert channel_map.parameters[f"norm.{tensor}"].axes[0] == (Segment(channels=4, group="a"),)
    assert "norm.num_batches_tracked" not in channel_map.parameters


def test_group_norm_records_its_block_size():
    channel_map = trace(
        lambda m, x: m.out(m.norm(m.a(x))), a=conv(3, 12), norm=nn.GroupNorm(4, 12), out=conv(12, 2)
    )
    assert channel_map.groups["a"].multiple == 3


def test_two_group_norms_on_one_stream_keep_their_common_blocks():
    channel_map = trace(
        lambda m, x: m.out(m.second(m.first(m.a(x)))),
        a=conv(3, 12), first=nn.GroupNorm(6, 12), second=nn.GroupNorm(4, 12), out=conv(12, 2),
    )  # fmt: skip
    assert channel_map.groups["a"].multiple == 6


def test_a_norm_group_across_two_branches_pins_both():
    channel_map = trace(
        lambda m, x: m.out(m.norm(torch.cat([m.b(x), m.d(x)], 1))),
        b=conv(3, 3), d=conv(3, 5), norm=nn.GroupNorm(2, 8), out=conv(8, 2),
    )  # fmt: skip
    assert not channel_map.groups


def test_layer_norm_over_the_last_axis_follows_permuted_channels():
    channel_map = trace(
        lambda m, x: m.out(m.norm(m.a(x).permute(0, 2, 3, 1)).mean((1, 2))),
        a=conv(3, 4), norm=nn.LayerNorm(4), out=nn.Linear(4, 2),
    )  # fmt: skip
    assert segments(channel_map, "norm.weight", 0) == [(4, "a", 1)]
    assert segments(channel_map, "out.weight", 1) == [(4, "a", 1)]


def test_a_convolution_in_groups_couples_and_keeps_groups_whole():
    depthwise = trace(lambda m, x: m.out(m.b(m.a(x))), a=conv(3, 4), b=conv(4, 4, groups=4), out=conv(4, 2))
    grouped = trace(lambda m, x: m.out(m.b(m.a(x))), a=conv(3, 6), b=conv(6, 6, groups=2), out=conv(6, 2))
    for channel_map, channels, multiple in ((depthwise, 4, 1), (grouped, 6, 3)):
        assert channel_map.groups["a"].layers == ("a", "b")
        assert channel_map.groups["a"].multiple == multiple
        assert segments(channel_map, "b.weight", 0) == [(channels, "a", 1)]
        assert segments(channel_map, "b.weight", 1) == []


def test_groups_of_unlike_numbers_of_inputs_and_outputs_pin():
    wider = trace(lambda m, x: m.out(m.b(m.a(x))), a=conv(3, 4), b=conv(4, 8, groups=4), out=conv(8, 2))
    assert not wider.groups


def test_a_layer_used_twice_couples_its_inputs_and_outputs():
    channel_map = trace(lambda m, x: m.out(m.b(m.b(m.a(x)))), a=conv(3, 4), b=conv(4, 4), out=conv(4, 2))
    assert channel_map.groups["a"].layers == ("a", "b")


def test_layers_with_tied_weights_share_a_group_which_the_first_of_them_stands_for():
    first, second = conv(4, 4), conv(4, 4)
    second.weight = first.weight
    channel_map = trace(
        lambda m, x: m.out(m.second(m.first(m.a(x)))),
        a=conv(3, 4),
        first=first,
        second=second,
        out=conv(4, 2),
    )
    assert channel_map.groups["a"].layers == ("a", "first")
    assert channel_map.parameters["second.weight"] == channel_map.parameters["first.weight"]


UNKNOWN = {
    "an unknown function": lambda m, x: m.out(torch.roll(m.a(x), 1, 1)),
    "an unknown method": lambda m, x: m.out(m.a(x).flip(1)),
    "an unknown layer": lambda m, x: m.out(m.softmax(m.a(x))),
    "a channel shuffle": lambda m, x: m.out(m.a(x).unflatten(1, (-1, 2)).transpose(1, 2).flatten(1, 2)),
    "a slice": lambda m, x: m.out(torch.cat([m.a(x)[:, :3], m.b(x)[:, :1]], 1)),
    "a mean over channels": lambda m, x: m.out(m.a(x) - m.a(x).mean(1, keepdim=True)),
    "the number of channels": lambda m, x: m.out(m.a(x) / m.a(x).size(1)),
    "a number in a view": lambda m, x: m.out(m.a(x).view(-1, 4, 8, 8)),
    "a squeeze of all axes": lambda m, x: m.out(m.a(x).amax((2, 3)).squeeze().view(2, 4, 1, 1)),
    "an image added": lambda m, x: m.out(m.a(x) + x.mean(1, keepdim=True).expand(-1, 4, -1, -1)),
    "a parameter of its own": lambda m, x: m.out(m.a(x) + m.scale),
    "a scale in two uses": lambda m, x: m.out(m.a(x) * m.scale) + m.scale.sum(),
    "a scale with a number of channels": lambda m, x: m.out(m.a(x) * m.scale.view(1, 4, 1, 1)),
    "its weight read directly": lambda m, x: m.out(m.a(x)) + m.a.weight.sum(),
    "a branch of unlike structure": lambda m, x: m.out(m.a(x) + torch.cat([m.b(x), m.b(x)], 1)),
}  # fmt: skip


@pytest.mark.parametrize("case", UNKNOWN)
def test_channels_at_an_unknown_operation_are_pinned(case):
    layers = {
        "a": conv(3, 4),
        "b": conv(3, 2),
        "out": conv(4, 2),
        "softmax": nn.Softmax(1),
        "scale": nn.Parameter(torch.ones(1, 4, 1, 1)),
    }
    channel_map = trace(UNKNOWN[case], **layers)
    assert "a" not in channel_map.groups
    assert segments(channel_map, "a.weight", 0) == []


def test_a_scalar_or_spatial_factor_pins_nothing():
    layers = {"a": conv(3, 4), "b": conv(3, 1), "out": conv(4, 2)}
    channel_map = trace(lambda m, x: m.out(2 * m.a(x) * torch.sigmoid(m.b(x)) + 1), **layers)
    assert channel_map.groups["a"].channels == 4


def test_a_subclass_with_its_own_forward_method_is_unknown():
    class Doubled(nn.Conv2d):
        def forward(self, x):
            return torch.roll(super().forward(x), 1, 1)

    Doubled.__module__ = "torch.nn.custom"
    channel_map = trace(lambda m, x: m.out(m.b(m.a(x))), a=conv(3, 4), b=Doubled(4, 4, 1), out=conv(4, 2))
    assert not channel_map.groups


def test_a_layer_with_a_hook_is_unknown():
    module = SmallNet(Recipe())
    with attach(module, ["stem"]):
        assert "stem" not in trace_channels(module, INPUT).groups
    assert "stem" in trace_channels(module, INPUT).groups


def branching(module, x):
    return module.out(x) if x.sum() > 0 else module.out(-x)


def too_narrow(module, x):
    return module.out(functional.pad(x, (0, 0, 0, 0, 1, 0)))


def looping(module, x):
    return torch.stack([module.out(each) for each in x])


@pytest.mark.parametrize(
    ("forward", "place"),
    [
        (branching, r"line \d+ of test_trace\.py \(return module\.out\(x\) if x\.sum\(\) > 0"),
        (looping, r"line \d+ of test_trace\.py \(return torch\.stack\("),
        (too_narrow, r"nn\.Conv2d 'out', "),
    ],
)
def test_a_network_that_cannot_be_traced_is_refused_with_the_place_and_a_remedy(forward, place):
    with pytest.raises(ConfigError, match=f": at {place}.*must take one tensor of that shape"):
        trace(forward, out=conv(3, 2))
