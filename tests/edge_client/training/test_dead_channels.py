"""Dead channels are read off a training's result."""

import numpy as np
import pytest
import torch

from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.training.loop import train
from edge_client.training.results import dead_share
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout
from schemas.values import ModelSpec


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_channels_that_answer_no_example_are_counted(optimizer: str) -> None:
    module = build_model(ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10))
    group = next(iter(trace_channels(module, (1, 8, 8)).groups.values()))
    (layer,) = group.layers
    dead = group.channels * 9 // 10
    with torch.no_grad():
        module.get_parameter(f"{layer}.bias")[:dead] = -1e3
    before = {name: value.clone() for name, value in module.named_parameters()}
    plan = TrainingPlan(optimizer=optimizer, local_epochs=2, sam_radius=0.1)
    train(module, load_source("digits").subset(range(200)), plan)
    delta = {name: (value - before[name]).detach().numpy() for name, value in module.named_parameters()}
    assert dead / group.channels <= dead_share(delta, trace_channels(module, (1, 8, 8))) < 1


def test_a_layer_that_is_not_trained_has_no_dead_channels_and_outputs_do_not_count() -> None:
    channels = {name: ChannelGroup(channels=4, layers=(name,)) for name in ("conv", "fixed")}
    shapes = {"conv.weight": (4, 2, 3, 3), "fixed.weight": (4, 4), "out.weight": (4, 4)}
    layouts = {name: ParameterLayout(shape=shape) for name, shape in shapes.items()}
    delta = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    delta["conv.weight"][1, 1, 2, 2] = 1e-9
    assert dead_share(delta, ChannelMap(groups=channels, parameters=layouts)) == 0.75
