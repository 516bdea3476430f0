"""A delivered model is trained on the device's own data, and kept if it is no worse on what is held out."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from edge_client.agent.personalisation import judged
from edge_client.agent.task_runner import do_delivery
from edge_client.agent.task_trainers import TaskTrainers
from edge_client.agent.worker import Worker
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.installed_model import served
from edge_client.inference.onnx_model import load_model
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.training.choice import make_trainer
from edge_client.training.results import Evaluation, TrainingStopped
from edge_client.training.trainer import Trained
from schemas.messages import DeliverTask, Delivery
from schemas.messages.tasks import STEP
from schemas.values import Personalisation, TrainingMetrics
from tests.integration.bench import Bench
from tests.schemas.examples import TRAIN_TASK

WORDS = ("model.name=mlp", "training.personalise-epochs=4", "learning-rate=0.1", "simulation.hold-out=0.2")
PATIENCE_S = 60


def bench_of(folder: Path, *words: str, trainer: str = "torch") -> Bench:
    """A bench whose devices have this trainer, and 60 examples of their own besides 40 that are held out."""
    bench = Bench(folder, "fedavg", *WORDS, *words)
    digits = load_source("digits")
    data = LocalData(digits.subset(range(60)), digits.subset(range(100, 140)))
    bench.devices = tuple(
        replace(device, profile=device.profile.model_copy(update={"trainers": (trainer,)}))
        for device in bench.devices
    )
    bench.places = {
        name: replace(place, trainer=make_trainer(trainer), data=data) for name, place in bench.places.items()
    }
    return bench


def delivered(bench: Bench, **hooks: Any) -> Delivery:
    task = bench.tasks(1, 1, deliver=True)["weak"]
    assert isinstance(task, DeliverTask)
    return do_delivery(task, bench.places["weak"], **hooks)


def result_of(delivery: Delivery) -> Personalisation:
    found = delivery.metrics.personalisation
    assert found is not None
    return found


@pytest.mark.parametrize("trainer", ["torch", "onnx"])
def test_the_exported_model_is_the_trained_one(tmp_path: Path, trainer: str) -> None:
    bench, epochs = bench_of(tmp_path, trainer=trainer), list[int]()
    delivery = delivered(bench, on_epoch=lambda report: epochs.append(report.epoch))
    found = result_of(delivery)
    assert epochs == [1, 2, 3, 4]
    assert (found.kept, found.epochs, found.metric, found.why) == (True, 4, "accuracy", "")
    assert found.before is not None
    assert found.after is not None
    assert found.after > found.before + 0.2
    held_out = bench.places["weak"].data.held_out
    outputs = load_model(served(bench.places["weak"].models)).logits(held_out.images)
    assert np.mean(outputs.argmax(1) == held_out.labels) == pytest.approx(found.after)
    assert delivery.metrics.onnx_accuracy == found.after


def test_a_model_that_has_become_worse_is_not_kept(tmp_path: Path) -> None:
    """All own examples are of one class, and those that are held out are of the other nine."""
    bench = bench_of(tmp_path)
    digits = load_source("digits")
    ones = digits.subset(np.flatnonzero(digits.labels == 1)[:40])
    held_out = digits.subset(np.flatnonzero(digits.labels != 1)[:40])
    bench.places["weak"] = replace(bench.places["weak"], data=LocalData(ones, held_out))
    before = delivered(bench)
    found = result_of(before)
    assert found.before is not None
    assert (found.kept, found.after) == (False, 0.0)
    assert found.why == f"accuracy 0.0%, {found.before:.1%} before"
    plain = bench_of(tmp_path / "plain", "training.personalise-epochs=0")
    plain.places["weak"] = replace(plain.places["weak"], data=LocalData(ones, held_out))
    as_received = delivered(plain)
    assert as_received.metrics.personalisation is None
    assert before.metrics.onnx_accuracy == as_received.metrics.onnx_accuracy == found.before


def test_a_task_without_it_is_the_task_of_before(tmp_path: Path) -> None:
    task = bench_of(tmp_path, "training.personalise-epochs=0").tasks(1, 1, deliver=True)["weak"]
    assert "personalise" not in task.model_dump_json()
    assert task.plan is None
    assert STEP not in task.blobs


def test_both_trainers_train_the_same_model(tmp_path: Path) -> None:
    found = {}
    for trainer in ("torch", "onnx"):
        bench = bench_of(tmp_path / trainer, trainer=trainer)
        delivered(bench)
        images = bench.places["weak"].data.held_out.images
        found[trainer] = load_model(served(bench.places["weak"].models)).logits(images)
    np.testing.assert_allclose(found["torch"], found["onnx"], atol=1e-4)


def test_a_device_that_cannot_train_exports_the_received_model_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The server knows a device with torch, and sends no step graph."""
    bench = bench_of(tmp_path)
    bench.places["weak"] = replace(bench.places["weak"], trainer=make_trainer("onnx"))
    delivery = delivered(bench)
    found = result_of(delivery)
    assert (found.kept, found.epochs, found.before) == (False, 0, None)
    assert "the task has no step graph" in found.why
    assert "exported as received" in caplog.text
    assert delivery.metrics.onnx_bytes


def test_without_held_out_examples_nothing_is_trained(tmp_path: Path) -> None:
    bench = bench_of(tmp_path)
    data = bench.places["weak"].data
    bench.places["weak"] = replace(bench.places["weak"], data=LocalData(data.train, data.held_out.subset([])))
    found = result_of(delivered(bench, on_epoch=lambda _: pytest.fail("trained")))
    assert (found.kept, found.why) == (False, "there are no examples held out to compare with")


def test_the_trainer_of_a_delivery_is_that_of_its_step_graph(tmp_path: Path) -> None:
    made = list[Any]()
    trainers = TaskTrainers(("torch", "onnx"), lambda name: made.append(name))  # type: ignore[func-returns-value]
    trainers.of(bench_of(tmp_path, trainer="onnx").tasks(1, 1, deliver=True)["weak"])
    assert made == ["onnx"]


def test_a_killed_training_goes_on_after_its_last_epoch(tmp_path: Path) -> None:
    whole = bench_of(tmp_path / "whole")
    delivered(whole)
    killed = bench_of(tmp_path / "killed")
    place = replace(killed.places["weak"], checkpoints=EpochCheckpoints(tmp_path / "epochs", interval_s=0.0))
    killed.places["weak"] = place
    task, done, again = killed.tasks(1, 1, deliver=True)["weak"], list[int](), list[int]()
    assert isinstance(task, DeliverTask)
    with pytest.raises(TrainingStopped):
        do_delivery(task, place, on_epoch=lambda r: done.append(r.epoch), should_stop=lambda: len(done) == 2)
    do_delivery(task, place, on_epoch=lambda report: again.append(report.epoch))
    assert (done, again) == ([1, 2], [3, 4])
    theirs = whole.places["weak"]
    assert served(place.models).read_bytes() == served(theirs.models).read_bytes()


def held(bench: Bench, end: Callable[[Worker], None]) -> Any:
    """The event of a delivery whose training waits from its start until `end` is called."""
    inbox: SimpleQueue[Any] = SimpleQueue()
    worker, waits = Worker(inbox), threading.Event()
    worker.hold()
    wait_for = worker._changed.wait_for
    worker._changed.wait_for = lambda until: (waits.set(), wait_for(until))[1]  # type: ignore[method-assign]
    worker.start(bench.tasks(1, 1, deliver=True)["weak"], bench.places["weak"])
    assert waits.wait(PATIENCE_S)
    end(worker)
    while not hasattr(event := inbox.get(timeout=PATIENCE_S), "result"):
        pass
    return event


def test_a_pause_that_lasts_too_long_ends_in_an_export_without_training(tmp_path: Path) -> None:
    ended = held(bench_of(tmp_path), lambda worker: worker.give_up_training("80 °C, at most 70 °C"))
    found = result_of(ended.result)
    assert (found.kept, found.why) == (False, "80 °C, at most 70 °C")


def test_a_pause_that_ends_lets_the_training_go_on(tmp_path: Path) -> None:
    ended = held(bench_of(tmp_path), lambda worker: worker.resume())
    assert result_of(ended.result).epochs == 4


@pytest.mark.parametrize(
    ("name", "metric", "before", "after", "kept"),
    [
        ("classification", "accuracy", 0.5, 0.5, True),
        ("classification", "accuracy", 0.5, 0.49, False),
        ("regression", "mae", 0.5, 0.4, True),
        ("regression", "mae", 0.5, 0.6, False),
    ],
)
def test_a_share_must_not_fall_and_an_error_must_not_grow(
    name: str, metric: str, before: float, after: float, kept: bool
) -> None:
    measured = [Evaluation(None, {metric: value}, 40) for value in (before, after)]
    trained = Trained({}, {}, {}, TrainingMetrics(examples=60, epochs=1, steps=8), *measured)
    model = TRAIN_TASK.model.model_copy(update={"task": name})
    found = judged(TRAIN_TASK.model_copy(update={"model": model}), trained)
    assert (found.kept, found.metric, found.before, found.after) == (kept, metric, before, after)
