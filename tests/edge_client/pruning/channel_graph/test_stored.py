"""Channels of layers whose forward methods are their own, and of scales."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edge_client.pruning.channel_graph.trace import trace, trace_channels
from edge_client.pruning.index_sets import permute
from edge_client.pruning.surgery import arrays_of, compact, count_macs, load_arrays
from schemas.submodel import SubModelSpec
from tests.edge_client.networks import INPUT, Net
from tests.edge_client.pruning.channel_graph.test_trace import conv, segments


class PaddedConv(nn.Conv2d):
    def forward(self, x):
        return functional.conv2d(x, self.weight, self.bias, self.stride, 1, self.dilation, self.groups)


class ActiveNorm(nn.BatchNorm2d):
    def forward(self, x):
        assert x.ndim == 4
        mean, variance = self.running_mean, self.running_var
        normed = functional.batch_norm(x, mean, variance, self.weight, self.bias, False, 0.1, self.eps)
        return functional.relu6(normed, inplace=True)


class LastNorm(nn.LayerNorm):
    def forward(self, x):
        last = x.permute(0, 2, 3, 1)
        normed = functional.layer_norm(last, self.normalized_shape, self.weight, self.bias, self.eps)
        return normed.permute(0, 3, 1, 2)


class GroupsNorm(nn.GroupNorm):
    def forward(self, x):
        return functional.silu(functional.group_norm(x, self.num_groups, self.weight, self.bias, self.eps))


class CastLinear(nn.Linear):
    def forward(self, x):
        return functional.linear(x.to(self.weight.dtype), self.weight, self.bias)


class Scale(nn.Module):
    def __init__(self, channels, form):
        super().__init__()
        self.gamma, self.form = nn.Parameter(torch.rand(channels) + 0.5), form

    def forward(self, x):
        return self.form(x, self.gamma)


FORMS = {
    "a view": lambda x, gamma: x * gamma.view(1, -1, 1, 1),
    "a reshape, in place": lambda x, gamma: x.mul_(gamma.reshape(1, -1, 1, 1)),
    "new axes": lambda x, gamma: gamma[:, None, None] * x,
    "unsqueezed": lambda x, gamma: torch.mul(x, gamma.unsqueeze(-1).unsqueeze(-1)),
    "the last axis": lambda x, gamma: (x.permute(0, 2, 3, 1) * gamma).permute(0, 3, 1, 2),
}


def subclassed() -> nn.Module:
    return Net(
        lambda m, x: m.out(m.norms(m.deep(m.batch(m.stem(x)))).mean((2, 3))),
        stem=PaddedConv(3, 8, 3, bias=False),
        batch=ActiveNorm(8),
        deep=PaddedConv(8, 8, 3, groups=8),
        norms=nn.Sequential(LastNorm(8), GroupsNorm(4, 8)),
        out=nn.Sequential(CastLinear(8, 6), nn.ReLU(), CastLinear(6, 5)),
    )


def scaled(form: str) -> nn.Module:
    return Net(
        lambda m, x: m.out(m.scale(m.stem(x))), stem=conv(3, 8), scale=Scale(8, FORMS[form]), out=conv(8, 2)
    )


def assert_exact(module: nn.Module) -> None:
    """Reordered channels give what they gave, and the network is cut to what its parts then compute."""
    module.eval()
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=torch.Generator().manual_seed(1)) + 0.2)
    x = torch.rand(2, *INPUT, generator=torch.Generator().manual_seed(2))
    channel_map = trace_channels(module, INPUT)
    before = module(x.clone())
    order = {}
    for name, group in channel_map.groups.items():
        starts = np.random.default_rng(0).permutation(group.channels // group.multiple) * group.multiple
        order[name] = (starts[:, None] + np.arange(group.multiple)).ravel().tolist()
    load_arrays(module, permute(arrays_of(module), order, channel_map))
    torch.testing.assert_close(module(x.clone()), before)


def test_subclasses_of_layers_are_cut_as_the_layers_that_they_are():
    module = subclassed()
    traced = trace(module, INPUT)
    assert traced.stops == ()
    stem, hidden = traced.channel_map.groups["stem"], traced.channel_map.groups["out.0"]
    assert (stem.channels, stem.layers, stem.multiple) == (8, ("stem", "deep"), 2)
    assert hidden.layers == ("out.0",)
    for name in ("batch.weight", "batch.running_var", "norms.0.bias", "norms.1.weight", "deep.weight"):
        assert segments(traced.channel_map, name, 0) == [(8, "stem", 1)]
    assert_exact(module)


def test_a_cut_subclass_knows_its_sizes_and_is_counted():
    module = subclassed().eval()
    smaller = compact(
        module, SubModelSpec(kept={"stem": (6, 7, 2, 3), "out.0": 3}), trace_channels(module, INPUT)
    )
    assert smaller(torch.zeros(2, *INPUT)).shape == (2, 5)
    assert (smaller.deep.groups, smaller.norms[0].normalized_shape, smaller.norms[1].num_groups) == (
        4,
        (4,),
        2,
    )
    assert (smaller.out[0].in_features, smaller.out[0].out_features) == (4, 3)
    # 4 channels of 3x3x3 and of 3x3 at 64 places; 4 x 3 and 3 x 5.
    assert count_macs(smaller, INPUT) == 64 * (4 * 27 + 4 * 9) + 12 + 15


def test_a_convolution_in_groups_is_cut_group_by_group():
    module = Net(lambda m, x: m.out(m.b(m.a(x))), a=conv(3, 12), b=conv(12, 12, groups=4), out=conv(12, 2))
    assert_exact(module)
    channel_map = trace_channels(module, INPUT)
    smaller = compact(module, SubModelSpec(kept={"a": (9, 10, 11, 0, 1, 2)}), channel_map)
    assert (smaller.b.groups, smaller.b.in_channels, smaller.b.out_channels) == (2, 6, 6)
    with torch.no_grad():
        module.b.weight[3:9], module.b.bias[3:9], module.out.weight[:, 3:9] = 0, 0, 0
        x = torch.rand(2, *INPUT)
        torch.testing.assert_close(smaller(x), module(x))
    alone = compact(module, SubModelSpec(kept={"a": 3}), channel_map)
    assert (alone.b.groups, alone.b.in_channels) == (1, 3)
    assert alone(x).shape == (2, 2, 8, 8)


@pytest.mark.parametrize("form", FORMS)
def test_a_scale_for_each_channel_is_cut_with_them(form):
    module = scaled(form)
    channel_map = trace_channels(module, INPUT)
    assert segments(channel_map, "scale.gamma", 0) == [(8, "stem", 1)]
    assert_exact(module)
    smaller = compact(module, SubModelSpec(kept={"stem": (5, 1)}), channel_map)
    assert torch.equal(smaller.scale.gamma, module.scale.gamma[[5, 1]])
    assert smaller(torch.zeros(2, *INPUT)).shape == (2, 2, 8, 8)


class Borrowing(nn.Module):
    """Convolves with the weight of another kind of layer."""

    def __init__(self):
        super().__init__()
        self.weight, self.groups = nn.Parameter(torch.rand(8, 1, 3, 3)), 8

    def forward(self, x):
        return functional.conv2d(x, self.weight, None, 1, 1, 1, self.groups)


class Shifted(nn.Module):
    """Adds what is no parameter."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(8, 1, 1))

    def forward(self, x):
        return x + self.mean


class Standardised(nn.Conv2d):
    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return functional.conv2d(x, weight, self.bias, 1, 1)


class OtherGroups(PaddedConv):
    def forward(self, x):
        return functional.conv2d(x, self.weight.repeat(1, 1, 1, 1), self.bias, 1, 1, 1, self.groups)


@pytest.mark.parametrize(
    "layer",
    [
        Borrowing(),
        Standardised(8, 8, 3),
        OtherGroups(8, 8, 3, groups=8),
        Shifted(),
        Scale(8, lambda x, gamma: x * gamma.view(1, 8, 1, 1)),
        Scale(8, lambda x, gamma: x + gamma.view(1, -1, 1, 1)),
        Scale(8, lambda x, gamma: x * gamma.view(1, -1, 1, 1) * gamma.sum()),
    ],
    ids=lambda layer: type(layer).__name__,
)
def test_channels_stay_whole_where_a_parameter_is_read_otherwise(layer):
    channel_map = trace_channels(
        Net(lambda m, x: m.out(m.layer(m.stem(x))), stem=conv(3, 8), layer=layer, out=conv(8, 2)), INPUT
    )
    assert "stem" not in channel_map.groups


def test_a_slice_that_has_all_channels_pins_nothing():
    forward = {"all": lambda m, x: m.out(m.a(x)[:, :4]), "more": lambda m, x: m.out(m.a(x)[:, 0:9, :, 1:])}
    for each in forward.values():
        channel_map = trace_channels(Net(each, a=conv(3, 4), out=conv(4, 2)), INPUT)
        assert channel_map.groups["a"].channels == 4
