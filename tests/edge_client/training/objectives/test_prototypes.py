"""FedGH on the device (Yi et al. 2023): the header, and the mean representation of each class."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import make_labelled_data
from edge_client.data.sources import load_source
from edge_client.models.build import header_name, header_of
from edge_client.models.registry import MODELS
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of, compact
from edge_client.training.loop import train
from edge_client.training.objectives.base import TrainingContext
from edge_client.training.objectives.feature_sums import Prototypes
from schemas.errors import ConfigError
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_client.networks import Net

PLAN = TrainingPlan(objectives=(Component(name="prototypes"),), learning_rate=0.1, batch_size=16)


def backwards() -> Net:
    """A network whose header is the first layer that it defines."""
    layers = {"classes": nn.Linear(6, 10), "hidden": nn.Linear(64, 6), "dropout": nn.Dropout(0.5)}
    return Net(lambda net, x: net.classes(net.dropout(torch.relu(net.hidden(x.flatten(1))))), **layers)


@pytest.mark.parametrize(
    ("model", "header"),
    [
        ("two-nn", "linear2"),
        ("mlp", "linear3"),
        ("cnn", "linear3"),
        ("cnn-batch", "linear3"),
        ("cnn-group", "linear3"),
        ("resnet20", "fc"),
        ("resnet20-group", "fc"),
        ("resnet56", "fc"),
        ("mobilenet-v2", "classifier.1"),
    ],
)
def test_every_shipped_network_has_a_header(model: str, header: str) -> None:
    assert model in MODELS
    assert header_of(ModelSpec(name=model, input_shape=(3, 32, 32), num_classes=7)) == header


def test_the_header_is_the_layer_that_computes_the_scores() -> None:
    module = backwards().train()
    assert header_name(module, (1, 8, 8)) == "classes"
    assert module.training
    assert not any(layer._forward_hooks for layer in module.modules())


@pytest.mark.parametrize(
    "module",
    [
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.LogSoftmax(1)),
        nn.Sequential(nn.Conv2d(1, 10, 8), nn.Flatten()),
        nn.Linear(8, 10),
    ],
)
def test_a_network_that_does_not_end_in_a_linear_layer_is_refused(module: nn.Module) -> None:
    with pytest.raises(ConfigError, match=r"last layer must be a torch.nn.Linear"):
        header_name(module, (1, 8, 8))


def test_representations_are_averaged_by_class() -> None:
    # The input of the header is relu(2 x): (2, 0), (6, 4) and (0, 8). Class 0 has the first two, with mean
    # (4, 2); class 2 has the last; class 1 has none.
    module = nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 3, bias=False))
    module[1].weight.data = 2 * torch.eye(2)
    inputs = torch.tensor([[1.0, -5.0], [3.0, 2.0], [-1.0, 4.0]])
    labels = torch.tensor([0, 0, 2])
    objective = Prototypes()
    objective.setup(module, TrainingContext(PLAN, inputs=inputs, labels=labels))
    sent = objective.finish()["prototypes"]
    assert sent["3.weight"].tolist() == [[4, 2], [0, 0], [0, 8]]
    assert sent["counts"].tolist() == [2, 0, 1]
    assert not any(layer._forward_pre_hooks for layer in module.modules())


def test_representations_are_those_of_the_trained_network_without_dropout() -> None:
    torch.manual_seed(0)
    module, data = backwards(), load_source("digits").subset(range(30))
    sent = train(module, data, PLAN).groups["prototypes"]["classes.weight"]
    inputs = torch.from_numpy(data.inputs()).flatten(1)
    values = torch.relu(module.hidden(inputs)).detach().numpy()
    for number in range(10):
        assert sent[number] == pytest.approx(values[data.labels == number].mean(0), abs=1e-5)


def test_a_narrower_sub_model_sends_prototypes_of_its_own_width() -> None:
    torch.manual_seed(0)
    full = nn.Sequential(nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 10))
    channel_map = trace_channels(full, (1, 8, 8))
    spec = SubModelSpec(kept=dict.fromkeys(channel_map.groups, 5))
    module = compact(full, spec, channel_map)
    sent = train(module, load_source("digits").subset(range(30)), PLAN).groups["prototypes"]
    assert sent["3.weight"].shape == (10, 5) == arrays_of(module)["3.weight"].shape


def test_training_is_plain_sgd() -> None:
    data = load_source("digits").subset(range(30))
    trained = []
    for objectives in (PLAN.objectives, ()):
        torch.manual_seed(0)
        module = backwards()
        train(module, data, PLAN.model_copy(update={"objectives": objectives}))
        trained.append(arrays_of(module))
    assert all((trained[0][name] == array).all() for name, array in trained[1].items())


def test_a_device_without_examples_sends_no_prototypes() -> None:
    data = make_labelled_data(np.zeros((0, 1, 8, 8), np.float32), np.zeros(0, np.int64))
    assert train(backwards(), data, PLAN).groups == {}
