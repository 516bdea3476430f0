"""The settings of a device's training in one round."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.coordinator.tasks.task import TaskPlan, personal_training, plan_training_tasks
from edge_server.coordinator.tier_assignment import make_tier_assigner
from edge_server.storage.recovery import Resumption
from edge_server.strategy.pruning.pruners import Cut
from edge_server.strategy.strategy import Assignment, Plan
from schemas.capabilities import ALL, Capability
from schemas.messages import DeliverTask, TrainTask
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.integration.bench import Bench

CUT = Cut(SubModelSpec())


def epochs(
    *overrides: str, scheduled: int | None = None, number: int = 1, share: float = 1.0
) -> dict[str, int]:
    """The epochs of three devices of tiers 1, 2 and 5."""
    planned = Plan({name: Assignment(CUT, 0.0, scheduled) for name in "abc"}, needed=3)
    config = load_config("attending", ["local-epochs=4", *overrides])
    tiers = {"a": 1, "b": 2, "c": 5}
    tasks = plan_training_tasks(planned, tiers, config, number=number, share=lambda spec: share)
    assert all(isinstance(task, TaskPlan) for task in tasks.values())
    return {name: task.local_epochs for name, task in tasks.items()}


def test_all_tiers_train_for_the_files_epochs() -> None:
    assert epochs() == {"a": 4, "b": 4, "c": 4}


def test_each_tier_may_have_its_own_epochs_and_a_tier_beyond_the_list_the_last() -> None:
    assert epochs("tiers.epochs-per-tier=[1, 2, 3]") == {"a": 1, "b": 2, "c": 3}


def test_a_schedule_sets_the_epochs_of_all_tiers() -> None:
    assert epochs(scheduled=7) == {"a": 7, "b": 7, "c": 7}


def test_a_device_whose_steps_are_smaller_trains_further_epochs() -> None:
    rounds = [epochs(number=number, share=0.75)["a"] for number in range(1, 7)]
    # 4 epochs at three quarters of the work are 5 1/3.
    assert rounds == [5, 5, 6, 5, 5, 6]
    assert epochs(scheduled=0, share=0.75) == {"a": 0, "b": 0, "c": 0}


def test_the_learning_rate_decays_from_round_to_round() -> None:
    training = load_config("fedavg", ["learning-rate=0.1", "training.learning-rate-decay=0.5"]).training
    rates = [training.of_round(number).learning_rate for number in (1, 2, 4)]
    assert rates == pytest.approx([0.1, 0.05, 0.0125])
    assert training.of_round(3).local_epochs == training.local_epochs


@pytest.mark.parametrize(
    ("network", "words", "radius"),
    [
        ("mlp", ("rounds=34",), 0.1),
        ("mlp", ("rounds=33",), 0.0),
        ("mlp", ("rounds=1", "sam-passes=0"), 0.1),
        ("cnn-group", ("rounds=34",), 0.0),
        ("cnn-batch", ("rounds=34",), 0.0),
        ("cnn-batch", ("rounds=34", "sam-normalised=true"), 0.1),
    ],
)
def test_networks_that_normalise_and_short_runs_have_plain_steps_where_the_file_says_so(
    network: str, words: tuple[str, ...], radius: float, tmp_path: Path
) -> None:
    bench = Bench(tmp_path, "attending", f"model.name={network}", "tiers.ratios=[0.5, 0.0]", *words)
    for task in bench.tasks(1, 1).values():
        assert isinstance(task, TrainTask)
        assert task.training.sam_radius == radius


def test_a_device_that_knows_no_rate_by_width_is_asked_for_none(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "attending", 'training.optimizer="adam"')
    weak, strong = bench.devices
    bench.devices = (replace(weak, can=ALL - {Capability.RATES_BY_WIDTH}), strong)
    plans = {name: task.training for name, task in bench.tasks(1, 1).items() if isinstance(task, TrainTask)}
    assert "rate_by_width" not in plans["weak"].model_dump()
    assert plans["strong"].rate_by_width


@pytest.mark.parametrize(("network", "kept"), [("cnn", True), ("cnn-group", False)])
def test_boards_need_memory_for_sharp_steps_only_where_they_take_them(
    network: str, kept: bool, tmp_path: Path
) -> None:
    words = (f"model.name={network}", "tiers.ratios=[0.5, 0.0]", "sam-passes=0")
    sharp, plain = (
        make_tier_assigner(
            Bench(tmp_path / name, "attending", *words, *more).coordinator.model, Resumption(0)
        )
        for name, more in {"sharp": (), "plain": ("sam-radius=0",)}.items()
    )
    assert (sharp.needs_of(1).memory != plain.needs_of(1).memory) == kept


def asked(folder: Path, recipe: str, *words: str) -> DeliverTask:
    """The delivery after round 3."""
    bench = Bench(folder, recipe, "model.name=mlp", "local-epochs=4", "simulation.hold-out=0.2", *words)
    task = bench.tasks(3, 1, deliver=True)["weak"]
    assert isinstance(task, DeliverTask)
    return task


AUTO = "personalise-epochs=auto"


def test_a_device_chooses_its_model(tmp_path: Path) -> None:
    """Three rounds of two epochs, and twice as many from the shared model."""
    task = asked(tmp_path, "fedavg", AUTO, "local-epochs=2", "learning-rate=0.01", "learning-rate-decay=0.5")
    assert task.where_classes_differ
    assert task.personalise is not None
    assert [each.name for each in task.personalise.objectives] == ["distil"]
    assert (task.personalise.local_epochs, task.personalise.learning_rate) == (12, 0.0025)
    more = asked(tmp_path / "more", "fedavg", AUTO, "local-epochs=40")
    assert more.personalise is not None
    assert more.personalise.local_epochs == 20


@pytest.mark.parametrize(("recipe", "words"), [("fedavg", ("personalise-epochs=0",)), ("fedper", (AUTO,))])
def test_no_model_is_trained_unasked(recipe: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Switched off, with a head of its own."""
    assert asked(tmp_path, recipe, *words).plan is None


def test_a_model_of_numbers_is_not_trained_unasked() -> None:
    model = ModelSpec(name="mlp", input_shape=(4,), num_classes=1, task="regression")
    plan = TaskPlan(1, CUT, 0.0)
    assert personal_training(load_config("fedavg", [AUTO]), model, 3, "weak", plan) == {}
    stated = personal_training(
        load_config("fedavg", ["personalise-epochs=2", "simulation.hold-out=0.2"]), model, 3, "weak", plan
    )
    assert stated["personalise"].objectives == ()


def test_all_devices_train_for_stated_epochs(tmp_path: Path) -> None:
    task = asked(tmp_path, "fedavg", "personalise-epochs=3")
    assert not task.where_classes_differ
    assert task.plan is not None
    assert task.plan.local_epochs == 3
