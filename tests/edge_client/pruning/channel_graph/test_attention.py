"""Tracing attention: heads are blocks that queries, keys, values and their reader keep or lose together."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import cut_axes
from edge_client.pruning.surgery import compact
from tests.edge_client.networks import Net, random_spec
from tests.edge_client.pruning.channel_graph.test_trace import segments

TOKENS, WIDTH, HEADS, HEAD = 5, 12, 3, 4
INPUT = (TOKENS, WIDTH)


def linear(outputs: int = HEADS * HEAD, inputs: int = WIDTH) -> nn.Linear:
    return nn.Linear(inputs, outputs)


def net(forward, **layers) -> nn.Module:
    """A network of double precision with linear layers q, k, v and out, and those that are named."""
    torch.manual_seed(0)
    standard = {name: linear() for name in ("q", "k", "v")} | {"out": linear(WIDTH)}
    return Net(forward, **{**standard, **layers}).double().eval()


def attended(q, k, v):
    return torch.softmax(q @ k.transpose(-2, -1) * HEAD**-0.5, -1) @ v


def unflattened(m, x):
    q, k, v = (layer(x).unflatten(-1, (-1, HEAD)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    return m.out(attended(q, k, v).transpose(1, 2).flatten(2))


def viewed(m, x):
    count, tokens, _ = x.shape
    q, k, v = (layer(x).view(count, tokens, -1, HEAD).permute(0, 2, 1, 3) for layer in (m.q, m.k, m.v))
    found = functional.scaled_dot_product_attention(q, k, v)
    return m.out(found.permute(0, 2, 1, 3).reshape(count, tokens, -1))


def normed(m, x):
    q, k, v = (layer(x).unflatten(2, (-1, HEAD)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    scores = torch.matmul(m.norm(q), m.norm(k).transpose(2, 3)).softmax(-1)
    return m.out(torch.matmul(scores, v).transpose(1, 2).flatten(2))


def gated(m, x):
    q, k, v = (layer(x).unflatten(2, (-1, HEAD)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    mixed = (attended(q, k, v) + v).transpose(1, 2).flatten(2)
    return m.out(mixed * torch.sigmoid(m.gate(x)))


def one_head(m, x):
    return m.out(torch.bmm(torch.softmax(torch.bmm(m.q(x), m.k(x).transpose(1, 2)), -1), m.v(x)))


NETWORKS = {
    "unflatten and matmul": (unflattened, {}),
    "view and scaled_dot_product_attention": (viewed, {}),
    "normalised queries and keys": (normed, {"norm": nn.LayerNorm(HEAD)}),
    "a gate behind heads": (gated, {"gate": linear()}),
    "one head": (one_head, {}),
}


@pytest.mark.parametrize("case", NETWORKS)
@pytest.mark.parametrize("seed", range(3))
def test_a_network_without_some_heads_equals_the_full_one_whose_reader_ignores_them(case, seed) -> None:
    forward, layers = NETWORKS[case]
    module = net(forward, **layers)
    channel_map = trace_channels(module, INPUT)
    assert channel_map.groups
    spec = random_spec(channel_map, seed)
    smaller = compact(module, spec, channel_map)
    x = torch.randn(2, *INPUT, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for name, tensor in module.named_parameters():
            kept = cut_axes(channel_map.parameters[name], spec).get(1)
            # Columns that are cut contribute nothing if they are zero; of one head so do keys and queries.
            if kept is not None:
                tensor[:, torch.from_numpy(np.setdiff1d(np.arange(tensor.shape[1]), kept))] = 0
        if case == "one head":
            for tensor in (module.q.weight, module.q.bias):
                kept = spec.indices("q", HEADS * HEAD)
                tensor[torch.from_numpy(np.setdiff1d(np.arange(HEADS * HEAD), kept))] = 0
        torch.testing.assert_close(smaller(x), module(x))


@pytest.mark.parametrize("case", ["unflatten and matmul", "view and scaled_dot_product_attention"])
def test_a_head_is_a_block_of_all_layers_and_only_its_values_carry_it(case) -> None:
    channel_map = trace_channels(net(NETWORKS[case][0]), INPUT)
    ((name, group),) = channel_map.groups.items()
    assert (group.channels, group.multiple, group.layers) == (HEADS * HEAD, HEAD, ("v",))
    head = [(HEADS * HEAD, name, 1)]
    for layer in ("q", "k", "v"):
        assert segments(channel_map, f"{layer}.weight", 0) == head
        assert segments(channel_map, f"{layer}.bias", 0) == head
    assert segments(channel_map, "out.weight", 1) == head


def test_one_head_may_lose_any_channel_and_values_of_their_own() -> None:
    groups = trace_channels(net(one_head), INPUT).groups
    assert {name: (group.layers, group.multiple) for name, group in groups.items()} == {
        "q": (("q", "k"), 1),
        "v": (("v",), 1),
    }


def test_flattened_maps_that_are_unflattened_are_channels_again() -> None:
    channel_map = trace_channels(
        Net(
            lambda m, x: m.out(torch.relu(m.conv(x)).flatten(1).unflatten(1, (-1, TOKENS)).mean(2)),
            conv=nn.Conv1d(2, 6, 1),
            out=linear(3, 6),
        ),
        (2, TOKENS),
    )
    assert segments(channel_map, "out.weight", 1) == [(6, "conv", 1)]
    assert channel_map.groups["conv"].multiple == 1


def by_number(m, x):
    q, k, v = (layer(x).view(-1, TOKENS, HEADS, HEAD).transpose(1, 2) for layer in (m.q, m.k, m.v))
    return m.out(attended(q, k, v).transpose(1, 2).flatten(2))


def across_heads(m, x):
    q, k, v = (layer(x).unflatten(2, (-1, HEAD)) for layer in (m.q, m.k, m.v))
    return m.out(attended(q, k, v).flatten(2))


def over_heads(m, x):
    q, k, v = (layer(x).unflatten(2, (-1, HEAD)).transpose(1, 2) for layer in (m.q, m.k, m.v))
    return m.out((torch.softmax(q @ k.transpose(2, 3), 1) @ v).transpose(1, 2).flatten(2))


def without_heads(m, x):
    return m.out(functional.scaled_dot_product_attention(m.q(x), m.k(x), m.v(x)))


def mixed_heads(m, x):
    v = m.v(x).unflatten(2, (-1, HEAD)).transpose(1, 2)
    return m.out((m.mix.unsqueeze(0).unsqueeze(0) @ v).transpose(1, 2).flatten(2) + m.q(x) + m.k(x))


@pytest.mark.parametrize("forward", [by_number, across_heads, over_heads, without_heads])
def test_heads_that_depend_on_each_other_or_on_their_number_stay_whole(forward) -> None:
    assert not trace_channels(net(forward), INPUT).groups


def test_a_factor_that_is_the_same_for_all_heads_lets_them_go() -> None:
    module = net(mixed_heads, mix=nn.Parameter(torch.randn(TOKENS, TOKENS)))
    assert "v" in {layer for group in trace_channels(module, INPUT).groups.values() for layer in group.layers}


def test_trained_attention_of_torch_stays_whole() -> None:
    module = Net(
        lambda m, x: m.out(m.attention(x, x, x)[0]),
        attention=nn.MultiheadAttention(WIDTH, HEADS, batch_first=True),
        out=linear(3),
    )
    assert not trace_channels(module, INPUT).groups
