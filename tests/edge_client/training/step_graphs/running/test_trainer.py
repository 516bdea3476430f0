"""A device without torch gives torch's updates, and refuses graphs that are not sound."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.models.graphs.checks import ModelProto
from edge_client.system.process_memory import is_shortage
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.training.results import TrainingStopped
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running import memory
from edge_client.training.step_graphs.running import trainer as running
from edge_client.training.step_graphs.running.arena import StepSession
from edge_client.training.step_graphs.running.objectives.registry import OBJECTIVES
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.torch_trainer import TorchTrainer
from edge_client.training.trainer import Trainer
from schemas.errors import PeerError, Reason
from schemas.messages import Task, TrainTask, Update
from schemas.messages.tasks import FEATURES
from schemas.strategy import TrainingSettings
from schemas.tensors.files import FlatGroups
from schemas.values import CapabilityProfile
from tests.edge_client.training.step_graphs.running.normalised import NORMALISED
from tests.groups import decode_groups
from tests.integration.bench import Bench
from tests.slow import mark_slow, slow

RECIPES: dict[str, tuple[str, ...]] = {
    "fedavg": ("warm-up-steps=3",),
    "fedprox": (),
    "scaffold": (),
    "igfl": (),
    # A sharpness-aware epoch, which is two, and a plain one.
    "attending": ("local-epochs=3",),
    "attending-l1": (),
    "heterofl": (),
    "hermes": (),
}
QUICK = [recipe if recipe in ("fedavg", "scaffold", "attending") else slow(recipe) for recipe in RECIPES]
"""Plain, with groups of its own, and with steps of several widths."""
WORDS = ("model.name=mlp", "learning-rate=0.05")


class TorchFreeBench(Bench):
    """A bench whose devices announce that they train without torch."""

    def __init__(self, folder: Path, recipe: str, *words: str) -> None:
        super().__init__(folder, recipe, *WORDS, *words)
        self.devices = tuple(
            replace(device, profile=CapabilityProfile(tier=device.profile.tier, trainers=("onnx",)))
            for device in self.devices
        )
        self.places = {
            name: replace(place, trainer=OnnxTrainer(threads=1), model_code=frozenset({NORMALISED}))
            for name, place in self.places.items()
        }


def trained(task: Task, place: TaskContext, trainer: Trainer, **more: Any) -> Update:
    assert isinstance(task, TrainTask)
    words = {"on_epoch": lambda _: None, "should_stop": lambda: False, **more}
    return do_training(task, replace(place, trainer=trainer), **words)


def groups_of(place: TaskContext, update: Update) -> FlatGroups:
    found: FlatGroups = decode_groups(place.store.blob_path(update.blob.digest).read_bytes())
    return found


def assert_alike(place: TaskContext, ours: Update, theirs: Update) -> None:
    mine, other = groups_of(place, ours), groups_of(place, theirs)
    assert mine.keys() == other.keys()
    for group in mine:
        assert mine[group].keys() == other[group].keys()
        for name, array in mine[group].items():
            difference = np.linalg.norm(array - other[group][name])
            assert difference <= 1e-4 * np.linalg.norm(other[group][name]) + 1e-7, (group, name)
    assert ours.metrics.accuracy == theirs.metrics.accuracy
    assert ours.metrics.steps == theirs.metrics.steps
    for name in ("train_loss", "received_loss"):
        loss = getattr(theirs.metrics, name)
        assert getattr(ours.metrics, name) == (None if loss is None else pytest.approx(loss, rel=1e-4))


@pytest.mark.parametrize("recipe", QUICK)
def test_two_rounds_give_torchs_updates(recipe: str, tmp_path: Path) -> None:
    assert_two_rounds_alike(TorchFreeBench(tmp_path, recipe, *RECIPES[recipe]))


@pytest.mark.parametrize("recipe", ["ridge", slow("class-means")])
def test_sums_of_features_are_torchs(recipe: str, tmp_path: Path) -> None:
    words = ('training.mirror=["left-right"]', f"model.name={NORMALISED}")
    assert_two_rounds_alike(TorchFreeBench(tmp_path, recipe, *words))


def test_channels_ranked_by_output_energy_have_torchs_scores(tmp_path: Path) -> None:
    pruner = 'strategy.pruner={ name = "attention", scores = "output-energy" }'
    bench = TorchFreeBench(tmp_path, "attending", pruner, f"model.name={NORMALISED}")
    assert_two_rounds_alike(bench)


def test_adams_rate_by_width_gives_torchs_updates(tmp_path: Path) -> None:
    words = ('training.optimizer="adam"', "training.learning-rate=0.003", "warm-up-steps=3")
    assert_two_rounds_alike(TorchFreeBench(tmp_path, "attending", *words))


@pytest.mark.parametrize(
    "changes", ['augment=["flip", "scale", "colour"]', slow('mirror=["left-right", "up-down"]')]
)
def test_changed_pictures_are_those_that_torch_sees(tmp_path: Path, changes: str) -> None:
    words = (f"training.{changes}", "local-epochs=2", f"model.name={NORMALISED}")
    assert_two_rounds_alike(TorchFreeBench(tmp_path, "fedavg", *words))


def test_frozen_layers_run_once_on_mirror_images_too(tmp_path: Path) -> None:
    words = ('training.mirror=["left-right"]', "training.train=head", f"model.name={NORMALISED}")
    bench = TorchFreeBench(tmp_path, "fedavg", *words)
    for name, task in bench.tasks(1, 1).items():
        place, data = bench.places[name], bench.places[name].data
        for kind in (OnnxTrainer(threads=1), TorchTrainer()):
            features = trained(task, place, kind).metrics.features
            assert features is not None
            assert features.examples == 2 * len(data.train) + len(data.held_out)


def test_a_network_that_keeps_its_answers_is_trained_as_torch_does(tmp_path: Path) -> None:
    words = ('strategy.objectives=["distil"]', "local-epochs=2", f"model.name={NORMALISED}")
    assert_two_rounds_alike(TorchFreeBench(tmp_path, "fedavg", *words))


@pytest.mark.parametrize("part", [slow("head"), '["1.bias", "head"]', '["1", "1.running_*"]'])
def test_a_part_of_a_network_is_trained_as_torch_does(tmp_path: Path, part: str) -> None:
    words = (f"training.train={part}", "local-epochs=2", f"model.name={NORMALISED}")
    assert_two_rounds_alike(TorchFreeBench(tmp_path, "fedprox", *words))


def test_frozen_layers_run_once_without_torch_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg", "training.train=head", f"model.name={NORMALISED}")
    bench.places = {
        name: replace(place, features=tmp_path / name / "features") for name, place in bench.places.items()
    }
    opened: list[str] = []
    read_alone: list[bool] = []
    open_session, read = running._open_session, running._read

    def reading(job: Any, wanted: Any = None) -> Any:
        read_alone.append(wanted is not None and len(wanted) == 2)
        return read(job, wanted)

    def opening(arrays: Any, graph: Path, *more: Any) -> Any:
        opened.append(graph.name)
        return open_session(arrays, graph, *more)

    monkeypatch.setattr(running, "_open_session", opening)
    monkeypatch.setattr(running, "_read", reading)
    digests = []
    for number in (1, 2):
        tasks = bench.tasks(number, number)
        updates = bench.answers(number)
        bench.close(number, updates)
        digests.append(tasks["strong"].blobs["features"].digest)
    assert digests[0] == digests[1]
    # Both devices have the same graph, and run it in the first round alone.
    assert opened.count(digests[0]) == len(bench.places)
    assert opened.count(tasks["strong"].blobs["rest"].digest) == 2 * 2 * len(bench.places)
    # Frozen arrays are read for that run, and for no other.
    assert read_alone.count(True) == 2 * len(bench.places)
    assert read_alone.count(False) == len(bench.places)


def test_passes_of_frozen_layers_are_smaller_for_larger_pictures() -> None:
    assert [running.frozen_batch((3, side, side)) for side in (28, 96, 224)] == [16, 2, 1]


def test_a_graph_of_features_of_another_width_is_refused(tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg", "training.train=head", f"model.name={NORMALISED}")
    task, place = bench.tasks(1, 1)["strong"], bench.places["strong"]
    swapped = {**task.blobs, FEATURES: task.blobs["graph"]}
    with pytest.raises(PeerError, match="a graph of features gives"):
        trained(task.model_copy(update={"blobs": swapped}), place, OnnxTrainer(threads=1))


@pytest.mark.parametrize(
    ("recipe", "network", "words"),
    [
        ("attending", "mlp", ()),
        slow("attending", "cnn-batch", ()),
        slow("hermes", "cnn-batch", ()),
        ("fedavg", "cnn-batch", ('strategy.objectives=["distil"]',)),
    ],
)
def test_objectives_that_look_behind_features_alone_train_on_them(
    recipe: str, network: str, words: tuple[str, ...], tmp_path: Path
) -> None:
    part = ('training.train=["linear2", "head"]', "tiers.ratios=[{ linear2 = 0.5 }, 0.0]", "local-epochs=2")
    bench = TorchFreeBench(tmp_path, recipe, f"model.name={network}", *part, *words)
    for number in (1, 2):
        for name, task in bench.tasks(number, number).items():
            assert FEATURES in task.blobs
            place = bench.places[name]
            ours, theirs = (trained(task, place, kind) for kind in (OnnxTrainer(threads=1), TorchTrainer()))
            assert ours.metrics.features is not None
            assert theirs.metrics.features is not None
            assert_alike(place, ours, theirs)
        if number == 1:
            bench.close(1, bench.answers(1))


@mark_slow
def test_tiers_have_features_of_unlike_widths(tmp_path: Path) -> None:
    words = (
        "training.train=last-1",
        'tiers.ratios=[{ "*" = 0.5 }, 0.0]',
        "model.name=resnet20",
        "local-epochs=1",
    )
    bench = TorchFreeBench(tmp_path, "fedavg", *words)
    for name, task in bench.tasks(1, 1).items():
        assert FEATURES in task.blobs
        theirs = trained(task, bench.places[name], TorchTrainer())
        assert_alike(bench.places[name], trained(task, bench.places[name], OnnxTrainer(threads=1)), theirs)


@pytest.mark.parametrize("recipe", ["scaffold", slow("fedprox"), slow("attending")])
def test_changes_of_low_rank_are_trained_as_torch_does(tmp_path: Path, recipe: str) -> None:
    part = ("training.train=lora", "training.rank=3", "local-epochs=3")
    assert_two_rounds_alike(TorchFreeBench(tmp_path, recipe, *part))


def assert_two_rounds_alike(bench: TorchFreeBench) -> None:
    for number in (1, 2):
        tasks = bench.tasks(number, number)
        assert tasks.keys() == set(bench.places)
        for name, task in tasks.items():
            place = bench.places[name]
            theirs = trained(task, place, TorchTrainer())
            ours = trained(task, place, OnnxTrainer(threads=1))
            assert_alike(place, ours, theirs)
        if number == 1:
            bench.close(1, bench.answers(1))


@pytest.mark.parametrize("recipe", ["fedavg", "fedprox"])
def test_a_task_that_neither_trains_nor_observes_changes_nothing(recipe: str, tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, recipe, "local-epochs=0", f"model.name={NORMALISED}")
    tasks = bench.tasks(1, 1)
    assert tasks.keys() == set(bench.places)
    for name, task in tasks.items():
        theirs = trained(task, bench.places[name], TorchTrainer())
        assert_alike(bench.places[name], trained(task, bench.places[name], OnnxTrainer(threads=1)), theirs)


@pytest.mark.parametrize("recipe", QUICK)
def test_batches_in_parts_give_torchs_updates(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    monkeypatch.setattr(memory, "AT_ONCE", 1)
    monkeypatch.setattr(memory, "PER_WEIGHT_BYTE", 0)
    monkeypatch.setattr(memory, "MIN_EXAMPLES", 3)
    monkeypatch.setattr(StepSession, "run", counting(StepSession.run, runs))
    bench = TorchFreeBench(tmp_path, recipe, *RECIPES[recipe])
    for number in (1, 2):
        for name, task in bench.tasks(number, number).items():
            theirs = trained(task, bench.places[name], TorchTrainer())
            assert_alike(
                bench.places[name], trained(task, bench.places[name], OnnxTrainer(threads=1)), theirs
            )
        if number == 1:
            bench.close(1, bench.answers(1))
    assert 1 < max(runs) <= 3


def counting(run: Callable[..., float], sizes: list[int]) -> Callable[..., float]:
    """`run` that also notes the number of examples of each batch."""

    def counted(session: StepSession, batch: Any) -> float:
        sizes.append(len(batch["inputs"]))
        return run(session, batch)

    return counted


def test_batches_are_not_split_where_normalisation_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    monkeypatch.setattr(memory, "AT_ONCE", 1)
    monkeypatch.setattr(memory, "PER_WEIGHT_BYTE", 0)
    monkeypatch.setattr(StepSession, "run", counting(StepSession.run, runs))
    bench = TorchFreeBench(tmp_path, "heterofl", f"model.name={NORMALISED}")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    trained(task, place, OnnxTrainer(threads=1))
    assert max(runs) == 8


def test_a_look_at_the_data_needs_no_memory_for_gradients() -> None:
    graph = Mock(fixed_bytes=0, bytes_per_example=0, size=0)
    settings = TrainingSettings(optimizer="adam", local_epochs=1)
    look = settings.model_copy(update={"local_epochs": 0})
    sharp = settings.model_copy(update={"sam_radius": 0.1})
    whole, parts, seen, kept = (
        memory.step_bytes(graph, plan, 1000, batch=4, split=split)
        for plan, split in ((settings, False), (settings, True), (look, True), (sharp, False))
    )
    assert (whole - seen, parts - whole, kept - whole) == (3000, 1000, 1000)
    # A copy of 800 bytes, factors of 50 with their gradients, and Adam's state of those and of 200 bytes.
    low = memory.step_bytes(graph, settings, 1000, batch=4, split=False, low=memory.LowRankBytes(800, 50))
    assert low - seen == 1000 + 800 + 2 * 50 + 2 * (200 + 50)


def test_the_same_task_gives_the_same_bytes(tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    assert (
        trained(task, place, OnnxTrainer(threads=1)).blob == trained(task, place, OnnxTrainer(threads=1)).blob
    )


@pytest.mark.parametrize("part", ["all", "lora"])
def test_a_killed_training_resumes_with_the_same_bytes(tmp_path: Path, part: str) -> None:
    words = ("local-epochs=3", "training.momentum=0.5", f"training.train={part}")
    bench = TorchFreeBench(tmp_path, "attending", *words)
    bench.close(1, bench.answers(1))
    task = bench.tasks(2, 2)["strong"]
    place = replace(bench.places["strong"], checkpoints=EpochCheckpoints(tmp_path / "epochs", interval_s=0))
    whole = trained(task, bench.places["strong"], OnnxTrainer(threads=1))
    stopped = iter([False] * 7 + [True] * 100)
    with pytest.raises(TrainingStopped):
        trained(task, place, OnnxTrainer(threads=1), should_stop=lambda: next(stopped))
    again = trained(task, place, OnnxTrainer(threads=1))
    assert again.blob == whole.blob


def test_devices_with_torch_get_no_graphs(tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg")
    weak, strong = bench.devices
    bench.devices = (weak, replace(strong, profile=CapabilityProfile(tier=2, trainers=("torch", "onnx"))))
    tasks = bench.tasks(1, 1)
    assert {name: sorted(task.graphs()) for name, task in tasks.items()} == {
        "weak": ["graph", "step"],
        "strong": [],
    }


def test_a_device_is_left_out_where_an_objective_needs_torch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = TorchFreeBench(tmp_path, "fedmix")
    weak, strong = bench.devices
    bench.devices = (weak, replace(strong, profile=CapabilityProfile(tier=2)))
    assert bench.tasks(1, 1).keys() == {"strong"}
    assert "weak trains without torch and is left out: the objective 'mix' needs torch" in caplog.text


def test_a_task_without_graphs_is_declined(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WORDS)
    with pytest.raises(PeerError, match="no step graph") as error:
        trained(bench.tasks(1, 1)["weak"], bench.places["weak"], OnnxTrainer(threads=1))
    assert error.value.reason == Reason.INCOMPATIBLE


def _another_operator(model: Any) -> None:
    model.graph.node[0].domain = "com.microsoft"


def _control_flow(model: Any) -> None:
    model.graph.node.add(op_type="Loop")


def _external_data(model: Any) -> None:
    tensor = model.graph.initializer.add(name="far", data_type=1)
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="/etc/passwd")


def _another_shape(model: Any) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value += 1


def _another_weight(model: Any) -> None:
    model.graph.input.add(name="nobody.weight").type.tensor_type.elem_type = 1


def _missing_operator(model: Any) -> None:
    model.graph.node[0].op_type = "NoSuchOperator"


@pytest.mark.parametrize(
    "change",
    [_another_operator, _control_flow, _external_data, _another_shape, _another_weight, _missing_operator],
)
def test_a_graph_that_is_not_sound_is_refused(change: Callable[[Any], None], tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    path = place.store.blob_path(task.blobs["step"].digest)
    model = ModelProto.FromString(path.read_bytes())
    change(model)
    path.write_bytes(model.SerializeToString())
    with pytest.raises(PeerError) as error:
        trained(task, place, OnnxTrainer(threads=1))
    assert error.value.reason == Reason.BAD_GRAPH


def test_a_graph_that_asks_for_more_than_the_memory_of_the_board_is_a_shortage(tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    path = place.store.blob_path(task.blobs["step"].digest)
    sound = path.read_bytes()
    path.write_bytes(_greedy(sound))
    with pytest.raises(Exception, match="smaller than requested bytes") as error:
        trained(task, place, OnnxTrainer(threads=1))
    assert is_shortage(error.value)
    path.write_bytes(sound)
    trained(task, place, OnnxTrainer(threads=1))


def _greedy(data: bytes) -> bytes:
    """The graph with a loss that is the largest of 10^13 copies of it."""
    model = ModelProto.FromString(data)
    loss = next(node for node in model.graph.node if names.LOSS in node.output)
    loss.output[list(loss.output).index(names.LOSS)] = "honest"
    copies = model.graph.initializer.add(name="copies", data_type=7, dims=[2])
    copies.raw_data = np.array([10**6, 10**7], np.int64).tobytes()
    model.graph.node.add(op_type="Expand", input=["honest", "copies"], output=["many"])
    largest = model.graph.node.add(op_type="ReduceMax", input=["many"], output=[names.LOSS])
    largest.attribute.add(name="keepdims", type=2, i=0)
    return model.SerializeToString()


def test_bytes_that_are_no_graph_are_refused(tmp_path: Path) -> None:
    bench = TorchFreeBench(tmp_path, "fedavg")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    place.store.blob_path(task.blobs["step"].digest).write_bytes(b"no graph at all")
    with pytest.raises(PeerError) as error:
        trained(task, place, OnnxTrainer(threads=1))
    assert error.value.reason == Reason.BAD_GRAPH


def test_every_supported_objective_exists_with_torch() -> None:
    from edge_client.training.objectives.registry import OBJECTIVES as OF_TORCH

    assert OBJECTIVES.keys() <= OF_TORCH.keys()
