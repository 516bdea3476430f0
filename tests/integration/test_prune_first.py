"""In ATTENDING's first round a device prunes the network by its own scores, and trains what is left."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.task_runner import do_training
from edge_client.pruning.channel_selection import best_spec, group_scores
from schemas.messages import TrainTask, Update
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups
from tests.edge_server.simulation.small import history, run
from tests.groups import encode_groups, read_groups
from tests.integration.bench import Bench

WORDS = ("model.name=two-nn", "local-epochs=2", "strategy.downlink=[]")


def answered(bench: Bench, name: str, task: TrainTask) -> tuple[Update, Groups]:
    """A device's update, and its groups."""
    place = bench.places[name]
    update = do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
    return update, read_groups(place.store.blob_path(update.blob.digest))


def first_tasks(bench: Bench) -> Mapping[str, TrainTask]:
    tasks = bench.tasks(1, 1)
    return {name: task for name, task in tasks.items() if isinstance(task, TrainTask)}


def only_scoring(task: TrainTask) -> TrainTask:
    """The same scoring as a task of its own."""
    assert task.personal is not None
    assert task.personal.scored_by is not None
    plan = task.training.model_copy(update={"local_epochs": 0, "objectives": (task.personal.scored_by,)})
    personal = task.personal.model_copy(update={"scored_by": None})
    return task.model_copy(update={"training": plan, "personal": personal, "returned": ()})


def of_sub_model(bench: Bench, name: str, task: TrainTask, spec: SubModelSpec) -> TrainTask:
    """The task of training this part of the received network, with the part as its state."""
    sent, store = bench.coordinator.model, bench.places[name].store
    part = sent.network.sub_model(sent.state.params, spec)
    arrays = {key: tensor.detach().numpy() for key, tensor in part.state_dict().items()}
    groups = {"model": {key: array for key, array in arrays.items() if array.dtype == np.float32}}
    blobs = {**task.blobs, "state": store.put_blob(encode_groups(groups))}
    return task.model_copy(
        update={"spec": spec, "personal": None, "blobs": blobs, "layers": (), "channels": {}}
    )


@pytest.mark.parametrize("name", ["weak", "strong"])
def test_the_update_is_that_of_scoring_and_then_training_the_best_channels(tmp_path: Path, name: str) -> None:
    bench = Bench(tmp_path, "attending", *WORDS)
    task = first_tasks(bench)[name]
    update, groups = answered(bench, name, task)
    _, scored = answered(bench, name, only_scoring(task))
    for layer, scores in scored["attention"].items():
        assert np.array_equal(groups["attention"][layer], scores)
    assert task.personal is not None
    channel_map = bench.coordinator.context.channel_map
    best = best_spec(group_scores(scored["attention"], channel_map), task.personal.ratios, channel_map)
    assert update.spec == best
    assert update.metrics.epochs == 2
    _, plain = answered(bench, name, of_sub_model(bench, name, task, best))
    assert groups["model"].keys() == plain["model"].keys()
    for key, delta in plain["model"].items():
        assert np.array_equal(groups["model"][key], delta), key


def test_the_weakest_device_sends_no_more_than_its_tier_holds(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "attending", *WORDS)
    sizes = {name: answered(bench, name, task)[0].blob.size for name, task in first_tasks(bench).items()}
    assert sizes["weak"] < sizes["strong"]
    assert all(sizes[name] <= bench.limits[name] for name in sizes)


def test_virtual_devices_train_in_round_one(tmp_path: Path) -> None:
    run(tmp_path / "run", "attending", "num-clients=4", "rounds=1", "tiers.ratios=[0.5, 0.0]")
    (line,) = history(tmp_path / "run")
    assert len(line["completed"]) == 4
    assert line["train_loss"] is not None
