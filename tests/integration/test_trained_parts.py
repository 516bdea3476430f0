"""Runs in which devices train a part of the network: the rest is sent once, and stays as it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_server.rounds.events import PlanRound
from edge_server.storage.run_folder import RunFolder
from schemas.capabilities import ALL, Capability
from schemas.messages import TrainTask
from schemas.tensors.arrays import Array
from schemas.tensors.files import FileGroups
from tests.edge_server.simulation.small import history, run
from tests.groups import read_groups
from tests.integration.bench import Bench
from tests.slow import slow

WORDS = ("model.name=cnn-batch", "clients.fraction=1.0", 'tiers.ratios=[{ "*" = 0.5 }, 0.0]')
PART = ("linear3.weight", "linear3.bias")


def test_the_frozen_part_is_sent_once_and_never_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WORDS, "training.train=head")
    start = {name: np.array(array) for name, array in bench.coordinator.model.state.params.items()}
    first = bench.tasks(1, 1)["strong"]
    _, updates = bench.round(1)
    after = bench.coordinator.model.state.params
    assert isinstance(first, TrainTask)
    assert first.trained == PART
    assert {name for name in start if (start[name] != after[name]).any()} == set(PART)
    sent = read_groups(bench.places["strong"].store.blob_path(updates["strong"].blob.digest))
    assert set(sent["model"]) == set(PART)
    second = bench.tasks(2, 2)["strong"]
    still = {second.blobs[layer.blob].digest for layer in second.frozen}
    assert still == {first.blobs[layer.blob].digest for layer in first.frozen}
    moving = [second.blobs[layer.blob].size for layer in second.layers]
    assert sum(moving) < sum(second.blobs[layer.blob].size for layer in second.frozen) / 50


def test_the_frozen_part_is_sent_once_to_a_tier_whose_trained_channels_change(tmp_path: Path) -> None:
    words = ('training.train=["linear2", "head"]', "tiers.ratios=[{ linear2 = 0.5 }, 0.0]")
    bench = Bench(tmp_path, "hermes", *WORDS[:-1], *words)
    tasks = []
    for number in (1, 2):
        tasks.append(bench.tasks(number, number))
        if number == 1:
            bench.round(1)
    first, second = (each["weak"] for each in tasks)
    assert first.spec != second.spec
    blobs = [{task.blobs[layer.blob] for layer in task.frozen} for each in tasks for task in each.values()]
    # Both tiers have all of what is frozen, in both rounds.
    assert len(set().union(*blobs)) == 1


def test_tiers_train_unlike_parts_of_one_network(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WORDS, 'tiers.train=["head", ["linear2", "head"]]')
    start = {name: np.array(array) for name, array in bench.coordinator.model.state.params.items()}
    tasks = bench.tasks(1, 1)
    assert {name: task.trained for name, task in tasks.items()} == {
        "weak": PART,
        "strong": ("linear2.weight", "linear2.bias", *PART),
    }
    bench.round(1)
    after = bench.coordinator.model.state.params
    changed = {name for name in start if (start[name] != after[name]).any()}
    assert changed == {"linear2.weight", "linear2.bias", *PART}


def test_no_tier_is_refused_for_what_it_trains(tmp_path: Path) -> None:
    """With a norm bound alone: no update is tried on test data in place of a refusal."""
    tiers = 'tiers.train=["head", "head", ["linear2", "head"], "linear*", "all"]'
    small = ("num-clients=5", "rounds=4", "batch-size=8", "samples-per-client=24", "test-samples=20")
    run(tmp_path / "run", "fedavg", WORDS[0], WORDS[1], *small, tiers, "firewall.leave-one-out=0")
    rows = history(tmp_path / "run")
    assert len(rows) == 4
    assert not any(row["rejected"] for row in rows)


def test_a_device_that_is_too_old_for_frozen_layers_is_left_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "fedavg", *WORDS, "training.train=head")
    weak, strong = bench.devices
    old = replace(weak, can=ALL - {Capability.TRAINS_PARTS})
    planned = bench.coordinator.planner.plan(PlanRound(1, 1, (old, strong)))
    assert set(planned.assignments) == {"strong"}
    assert "too old to train a part of a network: update it" in planned.left_out


def test_a_device_that_is_too_old_to_resize_pictures_is_left_out_where_they_are(tmp_path: Path) -> None:
    for words, left in (((), set()), (("data.interpolation=bicubic",), {"weak"})):
        bench = Bench(tmp_path / f"{len(words)}", "fedavg", "model.name=mlp", "clients.fraction=1.0", *words)
        weak, strong = bench.devices
        old = replace(weak, can=ALL - {Capability.RESIZES})
        planned = bench.coordinator.planner.plan(PlanRound(1, 1, (old, strong)))
        assert {"weak", "strong"} - set(planned.assignments) == left
        assert ("too old to resize pictures" in planned.left_out) == bool(left)


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("attending", ()),
        slow("adafl-scaffold", ()),
        slow("fedadam", ()),
        slow("dp-fedavg", ("privacy.clip=0.5",)),
        ("fedavg", ("privacy.secure-aggregation=true", "privacy.min-holders=3", "num-clients=4")),
    ],
)
def test_frozen_arrays_keep_their_bits(tmp_path: Path, recipe: str, words: tuple[str, ...]) -> None:
    given = ("model.name=cnn-batch", "num-clients=3", "clients.fraction=1.0", "rounds=2", "batch-size=8")
    small = ("samples-per-client=24", "local-epochs=1", "test-samples=20", "training.train=linear*")
    run(tmp_path / "run", recipe, *given, *small, *words)
    folder = RunFolder(tmp_path / "run")
    before, after = (FileGroups(folder.model(number))["model"] for number in (0, 2))
    changed = {name for name in before if _numbers(before[name]) != _numbers(after[name])}
    assert changed
    assert all(name.startswith("linear") for name in changed)


def _numbers(array: Array) -> list[float]:
    """The numbers without their order: channels may have been put into another one."""
    return np.sort(array, None).tolist()
