"""A delivered model is trained on the device's own data; the one of the lowest loss is exported."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_client.agent.device_training import (
    HALFWAY,
    PERSONAL,
    SHARED,
    UNEVEN,
    Candidate,
    DeviceTraining,
    choose,
    class_offsets,
    skew,
)
from edge_client.agent.settings import TaskTrainers
from edge_client.agent.task_runner import do_delivery
from edge_client.agent.worker import Worker
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.inference.installed_model import served_model_path
from edge_client.inference.onnx_model import load_model
from edge_client.training.checkpoints import EpochCheckpoints
from edge_client.training.choice import make_trainer
from edge_client.training.results import TrainingStopped
from schemas.messages import DeliverTask, Delivery
from schemas.messages.tasks import STEP
from schemas.values import Personalisation
from tests.integration.bench import Bench

WORDS = (
    *("model.name=mlp", "training.personalise-epochs=4", "learning-rate=0.1", "local-epochs=1"),
    "simulation.hold-out=0.2",
)
PATIENCE_S = 60


def bench_of(folder: Path, *words: str, trainer: str = "torch") -> Bench:
    """A bench whose devices have this trainer, and 60 examples of their own besides 40 that are held out."""
    bench = Bench(folder, "fedavg", *WORDS, *words)
    digits = load_source("digits")
    data = LocalData(digits.subset(range(60)), digits.subset(range(100, 140)))
    bench.train_with(trainer, data=data)
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
    assert found.model in ("personal", "halfway")
    assert found.before is not None
    assert found.after is not None
    assert found.after > found.before + 0.2
    held_out = bench.places["weak"].data.held_out
    outputs = load_model(served_model_path(bench.places["weak"].models)).logits(held_out.images)
    assert np.mean(outputs.argmax(1) == held_out.labels) == pytest.approx(found.after)
    assert delivery.metrics.onnx_accuracy == found.after
    note = load_model(served_model_path(bench.places["weak"].models)).provenance["personalisation"]
    assert note.startswith(
        f"{found.model}: accuracy {found.after:.2%}, {found.before:.2%} as received, of 40 held-"
    )


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
    assert found.why.startswith(f"accuracy 0.00%, {found.before:.2%} before")
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
        found[trainer] = load_model(served_model_path(bench.places["weak"].models)).logits(images)
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
    assert served_model_path(place.models).read_bytes() == served_model_path(theirs.models).read_bytes()


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


def unasked(folder: Path, classes: int, *more: str, trainer: str = "torch") -> Bench:
    """A bench whose devices decide whether they choose a model, and a device that has few of ten classes."""
    words = ("learning-rate=0.1", "model.name=mlp", "simulation.hold-out=0.2", "local-epochs=10")
    bench, digits = (
        bench_of(folder, "training.personalise-epochs=auto", *words, *more, trainer=trainer),
        load_source("digits"),
    )
    few = digits.subset(np.flatnonzero(digits.labels < classes)[:160])
    data = LocalData(few.subset(range(120)), few.subset(range(120, 160)))
    bench.places["weak"] = replace(bench.places["weak"], data=data)
    return bench


def test_a_device_of_few_classes_chooses_unasked(tmp_path: Path) -> None:
    bench = unasked(tmp_path, 3)
    task = bench.tasks(1, 1, deliver=True)["weak"]
    assert isinstance(task, DeliverTask)
    assert task.personalise is not None
    assert task.personalise.local_epochs == 20
    found = result_of(do_delivery(task, bench.places["weak"]))
    assert found.kept
    assert found.after is not None
    assert found.after > 0.9


def test_a_device_of_even_classes_exports_the_received_model(tmp_path: Path) -> None:
    bench = unasked(tmp_path, 10)
    delivery = delivered(bench, on_epoch=lambda _: pytest.fail("trained"))
    assert delivery.metrics.personalisation is None


@pytest.mark.parametrize("fewest", [0, 500])
def test_an_owner_who_asks_for_more_examples_has_the_received_model_exported(
    tmp_path: Path, fewest: int
) -> None:
    bench = unasked(tmp_path, 2)
    bench.places["weak"] = replace(bench.places["weak"], fewest_to_train=fewest)
    assert (delivered(bench).metrics.personalisation is None) == bool(fewest)


def test_a_training_that_takes_too_long_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 10))
    monkeypatch.setattr("edge_client.agent.device_training.time.monotonic", lambda: float(next(now)))
    bench = unasked(tmp_path, 3)
    task = bench.tasks(1, 1, deliver=True)["weak"].model_copy(update={"deadline_s": 100.0})
    assert isinstance(task, DeliverTask)
    found = result_of(do_delivery(task, bench.places["weak"]))
    # 20 epochs of 10 s each.
    assert (found.kept, found.why) == (False, "training takes 200 s, and the server waits 40 s")


def scores(folder: Path, *words: str, classes: int = 3, trainer: str = "torch") -> NDArray[np.float32]:
    """The exported scores [20, 10] of digits, of a device with these first classes that trains no further."""
    bench = unasked(folder, classes, "training.personalise-epochs=0", *words, trainer=trainer)
    assert delivered(bench).metrics.personalisation is None
    return load_model(served_model_path(bench.places["weak"].models)).logits(
        load_source("digits").images[:20]
    )


@pytest.mark.parametrize("trainer", ["torch", "onnx"])
def test_scores_know_how_frequent_each_class_is_on_the_device(
    tmp_path: Path, trainer: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain = scores(tmp_path / "plain", "class-odds=1", trainer=trainer)
    assert "that this device lacks" not in caplog.text
    odds = np.exp(scores(tmp_path / "odds", trainer=trainer) - plain)
    np.testing.assert_allclose(odds[:, 3:], 1 / 3, rtol=1e-3)
    assert ((odds[:, :3] > 0.7) & (odds[:, :3] < 1.001)).all()
    assert "classes that this device lacks count 1/3 of those that it has most of" in caplog.text


def test_scores_of_even_classes_stay_as_they_are(tmp_path: Path) -> None:
    plain = scores(tmp_path / "plain", "class-odds=1", classes=10)
    np.testing.assert_array_equal(scores(tmp_path / "odds", classes=10), plain)


def test_scores_stay_as_they_are_where_others_are_no_better(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = np.array([-5.0, 0.0, 0.0, *[0.0] * 7], np.float32)
    monkeypatch.setattr("edge_client.agent.device_training.class_offsets", lambda *_: wrong)
    odd = scores(tmp_path / "odds")
    np.testing.assert_array_equal(odd, scores(tmp_path / "plain", "class-odds=1"))


def test_few_of_many_examples_are_held_in_memory_to_compare_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[int]()
    real = DeviceTraining.outputs
    monkeypatch.setattr("edge_client.agent.device_training.MAX_COMPARED", 12)
    monkeypatch.setattr(
        DeviceTraining, "outputs", lambda *given: (seen.append(len(given[3])), real(*given))[1]
    )
    found = result_of(delivered(unasked(tmp_path, 3)))
    assert found.kept
    assert set(seen) == {12}


SHARED_ONE = Candidate(SHARED, {}, error=0.3, loss=1.0)


def chosen(*others: Candidate) -> str:
    return choose(SHARED_ONE, others).name


def test_the_lowest_loss_wins() -> None:
    halfway, personal = Candidate(HALFWAY, {}, 0.3, 0.8), Candidate(PERSONAL, {}, 0.3, 0.9)
    assert chosen(halfway, personal) == chosen(personal, halfway) == HALFWAY
    assert chosen(Candidate(PERSONAL, {}, 0.1, 1.1)) == SHARED


def test_a_model_that_makes_more_errors_is_not_kept() -> None:
    assert chosen(Candidate(PERSONAL, {}, 0.31, 0.1)) == SHARED
    assert chosen(Candidate(PERSONAL, {}, 0.31, 0.1), Candidate(HALFWAY, {}, 0.3, 0.9)) == HALFWAY


def test_a_loss_without_a_value_is_no_lower() -> None:
    assert chosen(Candidate(PERSONAL, {}, 0.0, float("nan"))) == SHARED


def test_offsets_are_logarithms_of_frequencies_within_the_odds() -> None:
    """Three, one and no example, and one of each: shares of the most frequent class 1, 1/2 and 1/4."""
    labels = np.array([0, 0, 0, 1])
    np.testing.assert_allclose(np.exp(class_offsets(labels, 3, 10)), [1, 0.5, 0.25], rtol=1e-6)
    many = np.exp(class_offsets(np.repeat(labels, 100), 3, 10))
    np.testing.assert_allclose(many, [1, 101 / 301, 0.1], rtol=1e-6)
    assert not class_offsets(np.arange(4), 4, 10).any()


def test_skew_is_a_multiple_of_what_chance_makes_of_equally_frequent_classes() -> None:
    assert skew(np.array([0, 1, 2, 3]), 4) == 0
    # Shares 3/4, 1/4, 0, 0 instead of 1/4 each: a mean distance of 1/4. By chance sqrt(2 * 3/16 / (4 pi)).
    assert skew(np.array([0, 0, 0, 1]), 4) == pytest.approx(0.25 / 0.17275, rel=1e-4)


def test_equally_frequent_classes_are_rarely_uneven() -> None:
    random = np.random.default_rng(0)
    for classes, count in ((10, 200), (3, 60), (2, 40)):
        found = [skew(random.integers(classes, size=count), classes) for _ in range(200)]
        assert np.mean(np.array(found) > UNEVEN) < 0.15
        assert skew(np.arange(count) % max(1, classes // 2), classes) > UNEVEN
