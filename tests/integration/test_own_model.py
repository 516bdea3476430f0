"""A model of a device's own beside the shared one: what pulls it, what it leaves alone, where it ends."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edge_client.agent.task_runner import do_delivery, do_training
from edge_client.storage.private_state import PrivateState
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.training.choice import make_trainer
from edge_client.training.results import TrainingStopped
from schemas.messages import TrainTask
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays, Groups
from tests.groups import read_groups
from tests.integration.bench import Bench

RATE = 0.05
WORDS = (
    "model.name=mlp",
    "clients.fraction=1.0",
    "tiers.ratios=[0.5, 0.0]",
    "strategy.downlink=[]",
    f"learning-rate={RATE}",
)


def pulled_by(mu: float) -> str:
    return f'strategy.own={{name="model", mu={mu}}}'


def bench_of(folder: Path, recipe: str, *words: str, trainer: str = "torch") -> Bench:
    """A bench whose devices have this trainer."""
    bench = Bench(folder, recipe, *WORDS, *words)
    bench.train_with(trainer)
    return bench


def kept(folder: Path, name: str, number: int) -> Groups:
    return PrivateState(folder / f"{name}-private").load_groups("run-1", number)


def own_of(folder: Path, name: str, number: int) -> Arrays:
    return {key: np.array(array) for key, array in kept(folder, name, number)["own"].items()}


def params(bench: Bench) -> Arrays:
    return {name: np.array(array) for name, array in bench.coordinator.model.state.params.items()}


@pytest.mark.parametrize("trainer", ["torch", "onnx"])
def test_the_shared_model_is_fedavgs_to_the_bit(tmp_path: Path, trainer: str) -> None:
    plain = bench_of(tmp_path / "fedavg", "fedavg", trainer=trainer)
    ditto = bench_of(tmp_path / "ditto", "ditto", trainer=trainer)
    for number in (1, 2):
        theirs, ours = plain.round(number)[1], ditto.round(number)[1]
        for name, update in ours.items():
            assert update.blob == theirs[name].blob
            assert set(read_groups(ditto.places[name].store.blob_path(update.blob.digest))) == {"model"}
            assert update.metrics.own_metrics.keys() == update.metrics.metrics.keys()
    shared, same = params(ditto), params(plain)
    assert all((shared[name] == same[name]).all() for name in same)


def test_without_a_pull_the_own_model_is_trained_on_local_data_alone(tmp_path: Path) -> None:
    """Two rounds of v with mu = 0 are two trainings of the whole model that nobody aggregates."""
    bench = bench_of(tmp_path, "ditto", pulled_by(0))
    w = params(bench)
    for number in (1, 2):
        bench.round(number)
    alone = bench_of(tmp_path / "alone", "fedavg")
    for number in (1, 2):
        answers = {"strong": alone.answers(number)["strong"]}
        alone.close(number, answers)
    own, alone_params = own_of(tmp_path, "strong", 3), params(alone)
    for name in w:
        np.testing.assert_allclose(own[name], alone_params[name], atol=2e-6)
        assert (own[name] != w[name]).any()


def test_a_strong_pull_keeps_the_own_model_at_the_shared_one(tmp_path: Path) -> None:
    """With mu = 1 / rate a step gives w - rate * gradient: v is one gradient from w, whatever it was before.

    Without a pull, the last of 3 epochs of 3 steps is up to nine gradients away.
    """
    far: dict[float, float] = {}
    for mu in (0.0, 1 / RATE):
        folder = tmp_path / str(mu)
        bench = bench_of(folder, "ditto", pulled_by(mu), "local-epochs=3")
        bench.round(1)
        w = params(bench)
        bench.round(2)
        own = own_of(folder, "strong", 3)
        far[mu] = float(np.sqrt(sum(np.square(own[name] - w[name]).sum() for name in w)))
    assert 0 < far[1 / RATE] < far[0.0] / 4


def test_both_trainers_give_the_same_own_model(tmp_path: Path) -> None:
    """The shared model's objective is part of its step graph, and the own model has a graph without it."""
    found = {}
    for trainer in ("torch", "onnx"):
        folder = tmp_path / trainer
        words = (pulled_by(0.5), 'strategy.objectives=["masked-loss"]', "tiers.ratios=[0.5]")
        bench = bench_of(folder, "fedavg", "simulation.hold-out=0.2", *words, trainer=trainer)
        bench.round(1)
        found[trainer] = own_of(folder, "weak", 2)
    assert found["torch"].keys() == found["onnx"].keys()
    for name, array in found["torch"].items():
        np.testing.assert_allclose(found["onnx"][name], array, atol=1e-5)


def test_channels_that_the_own_model_gains_have_the_received_values(tmp_path: Path) -> None:
    bench = bench_of(tmp_path, "ditto", pulled_by(0))
    bench.round(1)
    before = kept(tmp_path, "weak", 2)
    held = {name: np.array(array) for name, array in before["own-held"].items()}
    w, task = params(bench), bench.tasks(2, 2)["weak"]
    whole = bench.tasks(2, 3)["strong"].model_copy(update={"spec": SubModelSpec()})
    still = whole.training.model_copy(update={"local_epochs": 0})
    place = replace(bench.places["strong"], private=bench.places["weak"].private)
    do_training(
        whole.model_copy(update={"training": still}),
        place,
        on_epoch=lambda _: None,
        should_stop=lambda: False,
    )
    assert place.private is not None
    place.private.commit("run-1", 2, 3)
    own, old = own_of(tmp_path, "weak", 3), before["own"]
    gained = 0
    for name in w:
        np.testing.assert_allclose(own[name], np.where(held[name], old[name], w[name]), atol=1e-6)
        gained += int((~held[name].astype(bool)).sum())
    assert gained
    assert task.spec != SubModelSpec()


def test_a_killed_training_goes_on_in_the_model_that_it_was_at(tmp_path: Path) -> None:
    """Epochs 1 and 2 are those of the shared model, and then again those of the own one."""
    bench = bench_of(tmp_path, "ditto", "local-epochs=2")
    place, done, again = bench.places["strong"], list[int](), list[int]()
    task = bench.tasks(1, 1)["strong"]
    assert isinstance(task, TrainTask)
    whole = do_training(task, place, on_epoch=lambda _: None, should_stop=lambda: False)
    place.private.commit("run-1", 1, 1)
    expected = own_of(tmp_path, "strong", 2)
    other = PrivateState(tmp_path / "other-private")
    place = replace(place, checkpoints=EpochCheckpoints(tmp_path / "epochs", interval_s=0.0), private=other)
    with pytest.raises(TrainingStopped):
        do_training(task, place, on_epoch=lambda r: done.append(r.epoch), should_stop=lambda: len(done) == 3)
    place.checkpoints.keep_only(task)
    resumed = do_training(
        task, place, on_epoch=lambda report: again.append(report.epoch), should_stop=lambda: False
    )
    assert (done, again) == ([1, 2, 1], [2])
    assert resumed.blob == whole.blob
    other.commit("run-1", 1, 1)
    own = own_of(tmp_path, "other", 2)
    assert all((own[name] == expected[name]).all() for name in expected)


def test_what_an_objective_keeps_stays_beside_the_own_model(tmp_path: Path) -> None:
    bench = bench_of(tmp_path / "with", "scaffold", "simulation.hold-out=0.2", pulled_by(0.1))
    alone = bench_of(tmp_path / "without", "scaffold")
    for each in (bench, alone):
        each.round(1)
    both, control = kept(tmp_path / "with", "weak", 2), kept(tmp_path / "without", "weak", 2)
    assert set(both) == {"own-control", "own", "own-held"}
    assert all((both["own-control"][name] == array).all() for name, array in control["own-control"].items())


@pytest.mark.parametrize("trainer", ["torch", "onnx"])
def test_the_delivered_file_is_the_own_model(tmp_path: Path, trainer: str) -> None:
    bench = bench_of(tmp_path, "ditto", pulled_by(0.1))
    bench.round(1)
    task = bench.tasks(1, 2, deliver=True)["strong"]
    place = replace(bench.places["strong"], trainer=make_trainer(trainer))
    do_delivery(task, place)
    own, w = own_of(tmp_path, "strong", 2), params(bench)
    file = onnx.load(next(place.models.rglob("model.onnx")))
    stored = [numpy_helper.to_array(tensor) for tensor in file.graph.initializer]
    weights = [name for name in own if own[name].ndim > 1]

    def is_stored(array: np.ndarray) -> bool:
        forms = (array, array.T)
        return any(
            s.shape == form.shape and np.allclose(s, form, atol=1e-7) for s in stored for form in forms
        )

    assert all(is_stored(own[name]) for name in weights)
    assert not any(is_stored(w[name]) for name in weights)
