"""Layers that stay on devices: which they are, and that they are neither asked for nor changed."""

import numpy as np
import pytest
from torch import nn

from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import cut
from edge_server.strategy.pruning.own_parts import Head, Named, Normalisation, OwnModel
from edge_server.strategy.strategy import Network, start_state
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelMap
from schemas.values import ModelSpec


def mapped(name: str) -> ChannelMap:
    spec = ModelSpec(name=name, input_shape=(1, 28, 28), num_classes=10)
    return trace_channels(build_model(spec), spec.input_shape)


MLP, CNN = mapped("mlp"), mapped("cnn-batch")


def layers_of(channel_map: ChannelMap) -> list[str]:
    return list(dict.fromkeys(name.rpartition(".")[0] for name in channel_map.parameters))


def test_the_head_is_the_last_layer_or_the_last_ones() -> None:
    *_, hidden, last = layers_of(MLP)
    assert Head().layers(MLP) == (last,)
    assert Head(count=2).layers(MLP) == (hidden, last)
    with pytest.raises(ConfigError, match="3 layers, and a head of 3 leaves none to share: set count to 2"):
        Head(count=3).layers(MLP)


def test_normalisation_layers_are_those_without_a_matrix() -> None:
    own = Normalisation().layers(CNN)
    assert len(own) == 2
    assert all(len(CNN.parameters[f"{layer}.weight"].shape) == 1 for layer in own)
    assert all(f"{layer}.running_mean" in CNN.parameters for layer in own)
    with pytest.raises(ConfigError, match="no normalisation that a device could keep"):
        Normalisation().layers(MLP)


def test_a_normalisation_that_comes_first_counts_and_a_learned_slope_does_not() -> None:
    first = nn.Sequential(nn.BatchNorm2d(1), nn.Conv2d(1, 4, 3), nn.PReLU(4))
    module = nn.Sequential(first, nn.GroupNorm(2, 4), nn.Flatten())
    assert Normalisation().layers(trace_channels(module, (1, 8, 8))) == ("0.0", "1")


def test_named_layers_match_patterns() -> None:
    first, *_, last = layers_of(MLP)
    assert Named(names=(first, last)).layers(MLP) == (first, last)
    with pytest.raises(ConfigError, match="no layer matches nothing"):
        Named(names=("nothing",)).layers(MLP)
    with pytest.raises(ConfigError, match=r"every layer matches \*"):
        Named(names=("*",)).layers(MLP)


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_a_cut_asks_for_all_layers_but_the_devices_own(ratio: float) -> None:
    spec = StrategySpec(own=Component(name="head"), pruner=Component(name="index"))
    strategy = make_strategy(spec, (ratio,))
    params = {name: np.zeros(layout.shape, np.float32) for name, layout in MLP.parameters.items()}
    made = cut(strategy, start_state(strategy, params), Network(entry("mlp"), MLP), ratio)
    *shared, head = layers_of(MLP)
    assert made.own == (head,)
    assert made.returned == tuple(shared)


def test_with_a_model_of_its_own_a_device_sends_all_of_the_shared_one() -> None:
    spec = StrategySpec(own=Component(name="model", options={"mu": 0.5}))
    strategy = make_strategy(spec, (0.0,))
    params = {name: np.zeros(layout.shape, np.float32) for name, layout in MLP.parameters.items()}
    made = cut(strategy, start_state(strategy, params), Network(entry("mlp"), MLP), 0.0)
    assert (made.own, made.returned) == ((), None)
    assert made.own_model == Component(name="prox", options={"mu": 0.5})
    assert OwnModel().layers(MLP) == tuple(layers_of(MLP))
    assert (strategy.withholds, make_strategy(StrategySpec(), (0.0,)).withholds) == (False, False)
    with pytest.raises(ConfigError, match="mu must be a number of at least 0"):
        make_strategy(StrategySpec(own=Component(name="model", options={"mu": -1.0})), (0.0,))


def test_without_own_layers_everything_is_asked_for() -> None:
    strategy = make_strategy(StrategySpec(), (0.0,))
    params = {name: np.zeros(layout.shape, np.float32) for name, layout in MLP.parameters.items()}
    made = cut(strategy, start_state(strategy, params), Network(entry("mlp"), MLP), 0.0)
    assert (made.own, made.returned) == ((), None)
