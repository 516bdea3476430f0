"""The transformer encoder: exact sizes, and cut, exported, drawn and trained as convolutions are."""

from functools import cache

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from edge_client.inference.export.graph_export import draw_graph, fill
from edge_client.inference.quantization.quantize import quantise_model
from edge_client.models.build import build_model
from edge_client.models.graphs import costs
from edge_client.models.registry import entry
from edge_client.models.vit_tiny import ViTTiny
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import expand, extract
from edge_client.pruning.surgery import arrays_of, compact, count_macs, parameter_count
from edge_client.training.step_graphs.drawing.step import draw_step
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.values import ModelSpec
from tests.slow import slow

NAME = "vit-tiny"
DIGITS, SIGNALS = (1, 8, 8), (3, 48)
# A block of h heads and m hidden channels: two normalisations 2 * 128; values, queries and keys
# 3 * (64 + 1) * 16 h; their reader 16 h * 64 + 64; the hidden layer (64 + 1) m and 64 m + 64: that is
# 384 + 4,144 h + 129 m. Outside of the four blocks, for (1, 28, 28), are patches of 4x4 with 1,088, 49
# positions with 3,136, a normalisation with 128 and the head with 650: 5,002. A ratio p cuts ceil(4 p) heads
# but the last one, and ceil(128 p) hidden channels.
TIERS = {0.7: (1, 38), 0.5: (2, 64), 0.3: (2, 89), 0.1: (3, 115), 0.0: (4, 128)}
SIZES = {0.7: 42_722, 0.5: 72_714, 0.3: 85_614, 0.1: 115_606, 0.0: 138_890}


@cache
def network(shape: tuple[int, ...] = DIGITS, depth: int = 2) -> tuple[nn.Module, ChannelMap]:
    torch.manual_seed(0)
    module = ViTTiny(shape, 10, depth=depth).eval()
    return module, trace_channels(module, shape)


def tier(ratio: float, channel_map: ChannelMap) -> SubModelSpec:
    return prefix_spec(group_ratios(entry(NAME), ratio, channel_map), channel_map)


@pytest.mark.parametrize("ratio", SIZES)
def test_every_tier_has_the_size_that_is_computed_by_hand(ratio: float) -> None:
    module = build_model(ModelSpec(name=NAME, input_shape=(1, 28, 28), num_classes=10))
    channel_map = trace_channels(module, (1, 28, 28))
    heads, hidden = TIERS[ratio]
    smaller = compact(module, tier(ratio, channel_map), channel_map)
    for block in smaller.blocks:
        widths = {len(block.attention.get_submodule(name).weight) for name in ("value", "query", "key")}
        assert widths == {block.attention.out.in_features} == {16 * heads}
        assert block.linear1.out_features == block.linear2.in_features == hidden
    assert parameter_count(smaller) == SIZES[ratio] == 5_002 + 4 * (384 + 4_144 * heads + 129 * hidden)
    # 49 tokens: their patches 49 * 16 * 64, the head 640; per block and head four linear layers of
    # 49 * 64 * 16, scores and sums 2 * 49 * 49 * 16, and hidden channels 2 * 49 * 64.
    per_head, per_channel = 4 * 50_176 + 2 * 38_416, 6_272
    assert count_macs(smaller, (1, 28, 28)) == 50_816 + 4 * (per_head * heads + per_channel * hidden)


@pytest.mark.parametrize("shape", [DIGITS, SIGNALS])
@pytest.mark.parametrize("ratio", SIZES)
def test_a_tier_is_the_network_whose_other_heads_and_channels_are_silent(ratio: float, shape) -> None:
    module, channel_map = network(shape)
    spec = tier(ratio, channel_map)
    smaller = compact(module, spec, channel_map)
    cut = extract(arrays_of(module), spec, channel_map)
    assert all(np.array_equal(array, cut[name]) for name, array in arrays_of(smaller).items())
    silent, coverage = expand(cut, spec, channel_map)
    again = extract(silent, spec, channel_map)
    assert all(np.array_equal(array, again[name]) for name, array in cut.items())
    assert all(coverage[name].sum() == array.size for name, array in cut.items())
    whole = ViTTiny(shape, 10, depth=2).eval()
    whole.load_state_dict({name: torch.from_numpy(array) for name, array in silent.items()})
    inputs = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(smaller(inputs), whole(inputs), atol=1e-5, rtol=1e-5)


def test_one_exported_graph_serves_every_tier_and_computes_what_torch_does() -> None:
    module, channel_map = network(depth=1)
    graph = draw_graph(module, DIGITS)
    inputs = np.random.default_rng(0).standard_normal((4, *DIGITS), dtype=np.float32)
    for ratio in SIZES:
        smaller = compact(module, tier(ratio, channel_map), channel_map)
        filled = fill(graph, smaller, DIGITS)
        assert costs.count_macs(filled, DIGITS) == count_macs(smaller, DIGITS)
        data = filled.SerializeToString()
        (outputs,) = onnxruntime.InferenceSession(data).run(None, {"input": inputs})
        with torch.no_grad():
            np.testing.assert_allclose(outputs, smaller(torch.from_numpy(inputs)), atol=1e-5)
    small = quantise_model(data, inputs, {})
    (rounded,) = onnxruntime.InferenceSession(small).run(None, {"input": inputs})
    # Scores of an untrained network are near 0.
    assert np.abs(rounded - outputs).max() < 0.1


@pytest.mark.parametrize("ratio", [0.7, slow(0.0)])
def test_a_training_step_can_be_drawn_at_every_width(ratio: float) -> None:
    module, channel_map = network(depth=1)
    # It is compared with torch before it is returned.
    assert draw_step(compact(module, tier(ratio, channel_map), channel_map), DIGITS)


@pytest.mark.parametrize(
    ("shape", "tokens"),
    [((1, 28, 28), 49), ((3, 32, 32), 64), ((1, 8, 8), 16), ((2, 9, 13), 35), ((3, 48), 24)],
)
def test_an_input_becomes_at_most_64_patches_that_cover_it(shape: tuple[int, ...], tokens: int) -> None:
    module = ViTTiny(shape, 3, depth=1).eval()
    assert len(module.positions.weight) == tokens <= 64
    inputs = torch.zeros(1, *shape, requires_grad=True)
    module.embed.weight.data.fill_(1)
    module.embed(inputs).sum().backward()
    assert (inputs.grad > 0).all()


@pytest.mark.parametrize("shape", [(12,), (1, 3, 3), (1, 2, 8, 8)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ConfigError, match=r"takes pictures .* or signals"):
        build_model(ModelSpec(name=NAME, input_shape=shape, num_classes=3))
