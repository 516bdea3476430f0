"""Layers of a device's own: never sent, kept over a restart, in its model file."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from torch import nn

from edge_client.agent.task_runner import do_delivery, do_training
from edge_client.compression.layered_model import received_groups
from edge_client.pruning.index_sets import extract
from edge_client.pruning.update_coordinates import in_sub_model, with_own
from edge_client.storage.private_state import PrivateState
from edge_client.training.choice import make_trainer
from edge_server.config.load import load_config
from schemas.errors import ConfigError
from schemas.messages import TrainTask
from schemas.submodel import SubModelSpec
from tests.edge_server.simulation.small import run
from tests.groups import read_groups
from tests.integration.bench import Bench
from tests.slow import mark_slow

WORDS = ("model.name=mlp", "clients.fraction=1.0", "tiers.ratios=[0.5, 0.0]", "local-epochs=2")


def own_names(task: TrainTask, names) -> list[str]:
    return [name for name in names if name.rpartition(".")[0] in task.own]


@pytest.mark.parametrize("trainer", ["torch", "onnx"])
def test_a_device_goes_on_with_its_own_head_and_sends_the_rest(tmp_path: Path, trainer: str) -> None:
    bench = Bench(tmp_path, "fedper", *WORDS, f"simulation.trainer={trainer}")
    bench.train_with(trainer)
    before = bench.coordinator.model.state.params
    bench.round(1)
    after = bench.coordinator.model.state.params
    task = bench.tasks(2, 2)["weak"]
    assert isinstance(task, TrainTask)
    head = own_names(task, before)
    assert head
    # The server has the head that it began with, and has changed all other layers.
    assert all((before[name] == after[name]).all() for name in head)
    assert all((before[name] != after[name]).any() for name in before if name not in head)
    place = bench.places["weak"]
    kept = PrivateState(tmp_path / "weak-private").load_groups("run-1", 2)["own"]
    assert set(kept) == set(head)
    assert all((kept[name] != before[name]).any() for name in head)
    # With 0 epochs, the own layers after the round are those that it began with.
    still = task.model_copy(update={"training": task.training.model_copy(update={"local_epochs": 0})})
    done = do_training(still, place, on_epoch=lambda _: None, should_stop=lambda: False)
    assert not set(own_names(task, read_groups(place.store.blob_path(done.blob.digest))["model"]))
    assert place.private is not None
    place.private.commit("run-1", 2, 2)
    again = PrivateState(tmp_path / "weak-private").load_groups("run-1", 3)["own"]
    for name in head:
        np.testing.assert_allclose(again[name], kept[name], atol=1e-6)


@pytest.mark.parametrize("trainer", ["torch", "onnx"])
def test_the_delivered_file_has_the_devices_own_head(tmp_path: Path, trainer: str) -> None:
    bench = Bench(tmp_path, "fedper", *WORDS)
    bench.round(1)
    tasks = bench.tasks(1, 2, deliver=True)
    task = tasks["weak"]
    place = replace(bench.places["weak"], trainer=make_trainer(trainer))
    delivery = do_delivery(task, place)
    assert delivery.metrics.onnx_bytes
    channel_map = bench.coordinator.context.channel_map
    kept = extract(
        PrivateState(tmp_path / "weak-private").load_groups("run-1", 2)["own"], task.spec, channel_map
    )
    sent = received_groups(task, place.store, channel_map)["model"]
    file = onnx.load(next(place.models.rglob("model.onnx")))
    stored = [numpy_helper.to_array(tensor) for tensor in file.graph.initializer]

    def is_stored(array: np.ndarray) -> bool:
        return any(s.shape == array.shape and np.allclose(s, array) for s in stored) or any(
            s.shape == array.T.shape and np.allclose(s, array.T) for s in stored
        )

    weight = next(name for name in kept if name.endswith("weight"))
    assert is_stored(np.asarray(kept[weight]))
    assert not is_stored(np.asarray(sent[weight]))


def test_the_head_is_the_last_layer_as_the_network_registers_them(tmp_path: Path) -> None:
    """By name, `classifier` comes before `features`, and `norm1` after `linear`."""
    for network, head in (("mobilenet-v2-quarter", ("classifier.1",)), ("resnet20", ("fc",))):
        words = (f"model.name={network}", "clients.fraction=1.0", "tiers.ratios=[0.0]")
        assert Bench(tmp_path / network, "fedper", *words).coordinator.context.own_layers == head


@pytest.mark.parametrize(("recipe", "network"), [("fedper", "mlp"), ("fedbn", "cnn-batch")])
def test_channels_that_a_device_gains_have_the_received_values(
    tmp_path: Path, recipe: str, network: str
) -> None:
    words = (f"model.name={network}", "clients.fraction=1.0", "tiers.ratios=[0.5, 0.0]")
    bench = Bench(tmp_path, recipe, *words)
    bench.round(1)
    channel_map = bench.coordinator.context.channel_map
    task, whole = bench.tasks(2, 2)["weak"], SubModelSpec()
    before = PrivateState(tmp_path / "weak-private").load_groups("run-1", 2)
    ones = {name: np.ones(layout.shape, np.float32) for name, layout in channel_map.parameters.items()}
    narrow = extract(ones, task.spec, channel_map)
    wider = with_own({"model": ones}, in_sub_model(before, whole, channel_map), task.own)["model"]
    gained = 0
    for name in own_names(task, ones):
        found = np.asarray(wider[name])
        # What it has held is its own, which is hardly ever 1 after training; all else is received.
        gained += ones[name].size - narrow[name].size
        assert (found == 1).sum() >= ones[name].size - narrow[name].size
        assert (found != 1).any()
    assert gained


def test_a_network_without_a_linear_head_has_none_to_keep(tmp_path: Path) -> None:
    words = ["data.source=digits", f"model.name={__name__}:headless", "num-clients=2", "rounds=1"]
    with pytest.raises(
        ConfigError, match=r"strategy\] own: .* has no header: its last layer must be a torch\.nn"
    ):
        run(tmp_path / "run", "fedper", *words)


def headless(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, num_classes, 6), nn.Flatten())


@mark_slow
def test_devices_with_few_classes_have_better_models_with_heads_of_their_own(tmp_path: Path) -> None:
    words = ("num-clients=4", "data.partition=shards", "data.shards=2", "rounds=5", "learning-rate=0.1")
    more = ("simulation.hold-out=0.3", "deliver=trial", "batch-size=16", "class-odds=1")
    accuracies = {}
    for recipe in ("fedavg", "fedper"):
        summary = run(tmp_path / recipe, recipe, *words, *more)
        measured = [device.onnx_accuracy for device in summary.devices]
        assert None not in measured
        accuracies[recipe] = float(np.mean([value for value in measured if value is not None]))
    assert accuracies["fedper"] > accuracies["fedavg"] + 0.05


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ('strategy.transforms=["attention-matching"]', "not those of the device's own layers"),
        ("privacy.secure-aggregation=true", "secure-aggregation sums whole models"),
        ("firewall.canary=0.1", "cannot test a model for .* canary"),
        ("simulation.hold-out=0.0", "here they hold out no data: set hold-out = 0.2"),
    ],
)
def test_what_needs_whole_models_on_the_server_is_refused(word: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config("fedper", [word, "data.source=digits"])
