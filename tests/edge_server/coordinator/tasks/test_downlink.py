"""Devices receive the model within its codec's bounds and send the difference to the model they received."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.task_runner import do_training
from edge_client.compression.decoding import decode_groups
from edge_client.compression.downlink import make_downlink
from edge_client.compression.layered_model import received_groups
from edge_client.pruning.index_sets import extract
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.tasks.model_publisher import sent_groups
from schemas.errors import ConfigError
from schemas.messages import Task
from schemas.strategy import Component
from schemas.tensors.files import FileGroups
from tests.integration.bench import NAMES, Bench

CODECS = ("fp16", "int8")


def words(codec: str) -> tuple[str, str]:
    return f'strategy.downlink=["{codec}"]', "strategy.uplink=[]"


def bound(codec: str, array: np.ndarray) -> np.ndarray:
    """Largest error per number: half a step of its row (int8), or half a unit in the last place (fp16)."""
    size = np.abs(array.astype(np.float64))
    if codec == "fp16":
        return np.maximum(size * 2**-11, 2**-25)
    step = size.reshape(len(array), -1).max(axis=1) / 127
    return (step * (0.5 + 1e-5)).reshape(-1, *[1] * (array.ndim - 1)) * np.ones(array.shape)


def received(bench: Bench, name: str, task: Task) -> dict[str, np.ndarray]:
    model = decode_groups(
        received_groups(task, bench.places[name].store, bench.coordinator.context.channel_map)
    )["model"]
    return {parameter: model[parameter] for parameter in model}


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("recipe", ["heterofl", "feddrop", "scaffold"])
def test_every_tier_receives_its_part_of_the_model(tmp_path: Path, recipe: str, codec: str) -> None:
    bench = Bench(tmp_path, recipe, *words(codec), "clients.fraction=1.0")
    coordinator, sizes = bench.coordinator, {}
    for name, task in bench.tasks(1, 1).items():
        model = received(bench, name, task)
        for parameter, array in coordinator.model.state.params.items():
            cut = {parameter: array if array.ndim < 2 else bound(codec, array)}
            allowed = extract(cut, task.spec, coordinator.context.channel_map)[parameter]
            exact = extract({parameter: array}, task.spec, coordinator.context.channel_map)[parameter]
            assert model[parameter].dtype == np.float32
            off = np.abs(model[parameter].astype(np.float64) - exact)
            assert (off <= allowed).all() if array.ndim > 1 else not off.any()
        sizes[name] = sum(ref.size for key, ref in task.blobs.items() if key != "channel-map")
        plain = sum(array.nbytes for array in model.values())
        if recipe == "heterofl":
            assert sizes[name] < {"fp16": 0.6, "int8": 0.4}[codec] * plain
    assert sizes


def test_nested_sub_models_share_their_layers(tmp_path: Path) -> None:
    tasks = Bench(tmp_path, "heterofl", *words("int8")).tasks(1, 1)
    weak, strong = (tasks[name] for name in NAMES)
    assert len(strong.layers) == 2
    assert strong.blobs["layer-1"] == weak.blobs["layer-1"]


@pytest.mark.parametrize("codec", CODECS)
def test_a_device_that_learns_nothing_sends_nothing(tmp_path: Path, codec: str) -> None:
    """A device's update is the difference to the model it received, not to the server's exact model."""
    bench = Bench(tmp_path, "heterofl", *words(codec))
    task = bench.tasks(1, 1)["weak"]
    assert task.training is not None
    idle = task.model_copy(update={"training": task.training.model_copy(update={"local_epochs": 0})})
    place = bench.places["weak"]
    update = do_training(idle, place, on_epoch=lambda report: None, should_stop=lambda: False)
    sent = FileGroups(place.store.blob_path(update.blob.digest))["model"]
    assert not any(sent[name].any() for name in sent)


def test_the_delivered_model_is_exact(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "heterofl", *words("int8"))
    task = bench.tasks(1, 1, deliver=True)["strong"]
    model, network = received(bench, "strong", task), bench.coordinator.context.network
    exact = extract(bench.coordinator.model.state.params, task.spec, network.channel_map)
    assert all(np.array_equal(model[name], exact[name]) for name in exact)


def test_replayed_rounds_agree_bit_for_bit(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "attending", 'strategy.downlink=["int8"]')
    for number in (1, 2):
        record, _ = bench.round(number)
        assert len(record.completed) == 2
    assert [row.verdict for row in replay(tmp_path / "run")] == [ReplayVerdict.AGREES, ReplayVerdict.AGREES]


def test_without_a_codec_groups_are_returned_unchanged(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "heterofl")
    coordinator = bench.coordinator
    groups = {"model": coordinator.model.state.params}
    spec = bench.tasks(1, 1)["weak"].spec
    assert sent_groups(None, groups, spec, coordinator.context.channel_map) is groups


@pytest.mark.parametrize(
    ("named", "message"),
    [
        (["top-k"], "downlink: no codec of models is 'top-k' (known: delta, fp16, int8, zstd)"),
        (["int9"], "downlink: no codec of models is 'int9' (did you mean 'int8'?)"),
        (["fp16", "int8"], "downlink: 'fp16' and 'int8' both say how a number is written: leave one out"),
        ([{"name": "fp16", "levels": 3}], "downlink: codec 'fp16' has no option 'levels'"),
    ],
)
def test_invalid_downlink_codecs_are_refused(named: list[object], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_downlink([Component.model_validate(component) for component in named])
    assert str(error.value) == message
