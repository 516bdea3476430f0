"""Loss and accuracy by hand, evaluation that changes nothing, and dead channels."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import make_labelled_data
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.training.evaluation import batches_of, evaluate, logits
from edge_client.training.loop import train
from edge_client.training.results import dead_share
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout
from schemas.values import ModelSpec

IDENTITY = nn.Flatten()  # returns its two inputs as logits


def test_loss_and_accuracy_by_hand() -> None:
    # Logits (0, ln 3) are probabilities 1/4, 3/4. Labels 1, 1, 0: two of three are right, and the loss is
    # (2 ln 4/3 + ln 4) / 3.
    images = np.tile(np.array([0, np.log(3)], np.float32).reshape(1, 2, 1, 1), (3, 1, 1, 1))
    result = evaluate(IDENTITY, make_labelled_data(images, np.array([1, 1, 0])), batch_size=2)
    assert result.accuracy == pytest.approx(2 / 3)
    assert result.loss == pytest.approx((2 * np.log(4 / 3) + np.log(4)) / 3)
    assert result.examples == 3


def test_without_examples_there_is_no_accuracy() -> None:
    result = evaluate(IDENTITY, make_labelled_data(np.zeros((0, 2, 1, 1), np.float32), np.zeros(0)))
    assert (result.loss, result.accuracy, result.examples) == (None, None, 0)


def test_a_loss_that_is_not_finite_is_none() -> None:
    images = np.full((1, 2, 1, 1), np.nan, np.float32)
    assert evaluate(IDENTITY, make_labelled_data(images, np.zeros(1), class_names=("a", "b"))).loss is None


def test_modes_and_statistics_are_unchanged() -> None:
    module = nn.Sequential(nn.BatchNorm2d(1), nn.Dropout(0.9), nn.Flatten())
    module.train()
    module[0].eval()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    evaluate(
        module, make_labelled_data(np.ones((4, 1, 1, 2), np.float32), np.zeros(4), class_names=("a", "b"))
    )
    assert [part.training for part in module] == [False, True, True]
    torch.testing.assert_close(dict(module.state_dict()), before)


def test_logits_do_not_depend_on_the_batch_size() -> None:
    inputs = np.arange(10, dtype=np.float32).reshape(5, 2, 1, 1)
    for batch_size in (1, 2, 5, 100):
        outputs = logits(IDENTITY, inputs, batch_size=batch_size)
        assert outputs.dtype == np.float32
        np.testing.assert_array_equal(outputs, inputs.reshape(5, 2))


@pytest.mark.parametrize(("sides", "most", "counts"), [
    ((32, 32), 256, [256, 44]),
    ((32, 32), 64, [64, 64, 64, 64, 44]),
    ((1024, 1024), 64, [1] * 300),
    ((512, 1024), 64, [2] * 150),
])  # fmt: skip
def test_batches_of_large_pictures_are_small(sides: tuple[int, int], most: int, counts: list[int]) -> None:
    """At most 16 MiB: two pictures of 6 MiB, and one of 12."""
    pictures = torch.zeros(1).expand(300, 3, *sides)
    assert [len(batch) for batch in batches_of(pictures, most)] == counts


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
