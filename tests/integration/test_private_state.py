"""The private state of devices is used, and agrees with the server's state."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import do_training
from edge_client.pruning.index_sets import cut_axes
from edge_server.coordinator.coordinator import Coordinator
from schemas.messages import Task, Update
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Groups
from tests.groups import read_groups
from tests.integration.bench import NAMES, Bench

EVERYONE = 'strategy.fraction={name = "constant", value = 1.0}'
FLOATS = "strategy.uplink=[]"
RECIPES = {
    "scaffold": "own-control",
    "igfl-c": "own-step",
    "attending-adafl-scaffold": "own-control",
    "attending-igfl": "own-step",
}


def trained(task: Task, place: TaskContext) -> Groups:
    """The groups of a device's update."""
    update = do_training(task, place, on_epoch=lambda report: None, should_stop=lambda: False)
    return read_groups(place.store.blob_path(update.blob.digest))


def bench_of(folder: Path, recipe: str) -> Bench:
    return Bench(folder, recipe, EVERYONE, FLOATS)


def kept(bench: Bench, name: str, number: int) -> Groups:
    """The private state of a device before round `number`."""
    private = bench.places[name].private
    assert private is not None
    return private.load_groups("run-1", number)


def differ(first: Groups, second: Groups) -> bool:
    return any((first["model"][name] != second["model"][name]).any() for name in first["model"])


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_device_continues_from_its_private_state(tmp_path: Path, recipe: str) -> None:
    bench = bench_of(tmp_path, recipe)
    bench.round(1)
    task = bench.tasks(2, 2)["weak"]
    place = bench.places["weak"]
    assert set(kept(bench, "weak", 2)) == {RECIPES[recipe]}
    assert differ(trained(task, place), trained(task, replace(place, private=None)))


@pytest.mark.parametrize("recipe", RECIPES)
def test_an_update_that_did_not_count_changes_no_private_state(tmp_path: Path, recipe: str) -> None:
    bench = bench_of(tmp_path, recipe)
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    first = trained(task, place)
    assert kept(bench, "weak", 2) == {}
    assert not differ(first, trained(task, place))


@pytest.mark.parametrize("recipe", ["scaffold", "attending-adafl-scaffold"])
def test_the_servers_control_is_the_mean_of_the_devices_own(tmp_path: Path, recipe: str) -> None:
    """For coordinates of which both devices sent a control in every round."""
    bench, sent = bench_of(tmp_path, recipe), list[Update]()
    for number in (1, 2):
        sent += bench.round(number)[1].values()
        control = bench.coordinator.model.state.groups["control"]
        own = [kept(bench, name, number + 1)["own-control"] for name in NAMES]
        # In ATTENDING's first round a device trains more than it sends, and keeps the controls of all of it.
        for name, array in own[0].items():
            held = always_sent(array, bench.coordinator, sent, name)
            mean = (array[held] + own[1][name][held]) / 2
            np.testing.assert_allclose(control[name][held], mean, rtol=1e-3, atol=1e-6)
            assert mean.any()


def always_sent(
    array: np.ndarray, coordinator: Coordinator, updates: Sequence[Update], name: str
) -> tuple[np.ndarray, ...]:
    """The positions of a parameter that are in all updates."""
    channel_map = coordinator.context.channel_map
    kept = {
        group: tuple(sorted(set.intersection(*(set(u.spec.indices(group, entry.channels)) for u in updates))))
        for group, entry in channel_map.groups.items()
    }
    cut = cut_axes(channel_map.parameters[name], SubModelSpec(kept=kept))
    return np.ix_(*(cut.get(axis, np.arange(size)) for axis, size in enumerate(array.shape)))
