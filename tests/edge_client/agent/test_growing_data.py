"""Changed data is read again before each task; held-out examples stay held out."""

import logging
import os
import queue
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from edge_client.agent.local_source import DataChoice, LocalSource
from edge_client.agent.session.events import WorkDone
from edge_client.agent.settings import TaskContext
from edge_client.agent.worker import DataChanged, Worker
from edge_client.data.changes import SETTLED_S, marks_of_images
from edge_client.data.dataset import LabelledData
from edge_client.data.drift import DriftResult, ExampleRecord
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.local import LocalData
from edge_client.data.partition import HELD, NEW, TRAINED, split_indices
from edge_client.data.sounds.recordings import RESTS_S
from edge_client.data.sources import load_source
from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import Inbox
from schemas.messages import Task
from schemas.values import DriftFinding
from tests.edge_client.agent.session.by_hand import task, update
from tests.edge_client.data.sounds.sound_bytes import pcm, wav_bytes, write_wav

DIGITS = load_source("digits")

TAKEN: dict[str, Any] = {"count": 10, "calls": 0}


def growing_data() -> tuple[np.ndarray, np.ndarray]:
    """Data source whose number of examples is `TAKEN["count"]`."""
    TAKEN["calls"] += 1
    return np.arange(TAKEN["count"], dtype=np.float32).reshape(-1, 1, 1, 1), np.arange(TAKEN["count"]) % 2


def save(path: Path, count: int) -> None:
    """Save an archive of `count` examples with `count` as its modification time."""
    images = np.arange(count, dtype=np.uint8).reshape(count, 1, 1, 1)
    np.savez(path, images=images, labels=np.arange(count) % 2)
    os.utime(path, ns=(count, count))


def pixels(data: LocalData) -> tuple[set[int], set[int]]:
    train, held = (set(part.images.ravel().astype(int).tolist()) for part in (data.train, data.held_out))
    return train, held


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def photograph(root: Path, numbers: range) -> None:
    for number in numbers:
        folder = root / ("cat" if number % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 2), number, np.uint8)).save(folder / f"{number}.png")


def test_held_out_examples_stay_held_out_and_new_ones_complete_the_fraction(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 20)
    source = LocalSource(DataChoice(f"npz:{tmp_path / 'a.npz'}"))
    train, held = pixels(source.read())
    assert source.reload_if_changed() is None
    for count in (30, 31, 60):
        save(tmp_path / "a.npz", count)
        found = source.reload_if_changed()
        assert found is not None
        grown = pixels(found)
        assert (train <= grown[0], held <= grown[1]) == (True, True)
        assert grown[0] | grown[1] == set(range(count))
        assert len(grown[1]) == round(count / 5)
        train, held = grown
        assert source.reload_if_changed() is None


def test_new_photographs_are_found_and_logged_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    photograph(tmp_path, range(10))
    source = LocalSource(DataChoice(f"folder:{tmp_path}"))
    source.read()
    photograph(tmp_path, range(10, 20))
    with caplog.at_level(logging.INFO, "edge_client"):
        found = source.reload_if_changed()
    assert found is not None
    lines = [line for line in caplog.messages if "changed" in line]
    assert lines == [f"folder:{tmp_path}: changed: 20 examples, 16 trained on, 4 held out"]
    (tmp_path / "cat" / "1.png").unlink()
    found = source.reload_if_changed()
    assert found is not None
    assert len(found.train) + len(found.held_out) == 19


def test_a_larger_picture_with_boxes_leaves_the_others_on_their_sides(tmp_path: Path) -> None:
    def label(number: int, width: int) -> None:
        Image.fromarray(np.full((8, width, 3), number, np.uint8)).save(tmp_path / f"{number}.png")
        (tmp_path / f"{number}.txt").write_text("0 0.5 0.5 0.5 0.5\n")

    for number in range(20):
        label(number, width=8 + number % 2)
    source = LocalSource(DataChoice(f"yolo:{tmp_path}"))
    before = [{*part.images[:, 0, 0, 0].tolist()} for part in (source.read().train, source.read().held_out)]
    source.note_training(None)
    label(20, width=12)
    found = source.reload_if_changed()
    assert found is not None
    after = [{*part.images[:, 0, 0, 0].tolist()} for part in (found.train, found.held_out)]
    assert [earlier <= now for earlier, now in zip(before, after, strict=True)] == [True, True]
    assert found.train.images.shape[-1] == 12
    assert found.new == len(after[0]) - len(before[0])


def test_a_slow_function_is_called_again_for_at_most_a_tenth_of_the_time() -> None:
    now, takes_s = [0.0], 3.0

    def clock() -> float:
        # The clock is read before and after each reading of the data.
        now[0] += takes_s
        return now[0]

    TAKEN.update(count=10, calls=0)
    source = LocalSource(DataChoice(f"python:{__name__}:growing_data"), clock=clock)
    source.read()
    TAKEN["count"] = 20
    assert source.reload_if_changed() is None
    now[0] += 100
    found = source.reload_if_changed()
    assert found is not None
    assert len(found.train) == 16
    assert TAKEN["calls"] == 2
    now[0] += 100
    assert source.reload_if_changed() is None
    assert TAKEN["calls"] == 3


def test_an_unreadable_file_leaves_the_earlier_data_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path / "a.npz", 10)
    source = LocalSource(DataChoice(f"npz:{tmp_path / 'a.npz'}"))
    source.read()
    (tmp_path / "a.npz").write_bytes(b"half a file")
    assert [source.reload_if_changed(), source.reload_if_changed()] == [None, None]
    assert len(warnings(caplog)) == 1
    assert "cannot be used, the earlier data is kept" in warnings(caplog)[0]
    save(tmp_path / "a.npz", 20)
    found = source.reload_if_changed()
    assert found is not None
    assert len(found.train) == 16


def test_the_shipped_digits_are_read_once() -> None:
    source = LocalSource(DataChoice("digits", index=0, count=10))
    source.read()
    assert source.reload_if_changed() is None


def test_data_of_a_single_class_causes_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((5, 1, 2, 2), np.uint8), labels=np.full(5, 3))
    LocalSource(DataChoice(f"npz:{tmp_path / 'a.npz'}")).read()
    assert warnings(caplog) == [f"npz:{tmp_path / 'a.npz'}: 5 examples, all of one class, '3'"]


def test_no_example_changes_sides_in_a_small_case() -> None:
    # Of ten examples of one class, two are held out: the one held out before, and the only new one.
    before = np.array([TRAINED] * 8 + [HELD, NEW])
    train, held = split_indices(np.arange(10), np.zeros(10, np.int64), fraction=0.2, seed=0, before=before)
    assert (train.tolist(), held.tolist()) == (list(range(8)), [8, 9])


def test_a_recording_keeps_its_side_and_one_that_is_being_made_is_used_at_a_later_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    for name in ("cat", "dog"):
        for number in range(5):
            write_wav(tmp_path / name / f"{number}.wav", random.uniform(-0.5, 0.5, 3000), rate=1000)
    source = LocalSource(DataChoice(f"wav:{tmp_path}"))
    first = source.read()
    assert origins(first.train).isdisjoint(origins(first.held_out))
    assert (len(first.train), len(first.held_out)) == (24, 6)
    path = tmp_path / "dog" / "9.wav"
    path.write_bytes(wav_bytes(pcm(random.uniform(-0.5, 0.5, 3000), 16), rate=1000, size=0, whole=0))
    waiting = source.reload_if_changed()
    assert waiting is not None
    assert (len(waiting.train), len(waiting.held_out)) == (24, 6)
    assert source.reload_if_changed() is None
    later = path.stat().st_mtime + RESTS_S
    monkeypatch.setattr("edge_client.data.changes.time.time", lambda: later)
    last = source.reload_if_changed()
    assert last is not None
    assert len(last.train) + len(last.held_out) == 33
    assert origins(last.train).isdisjoint(origins(last.held_out))
    assert sounds(first.held_out) <= sounds(last.held_out)
    assert sounds(first.train) <= sounds(last.train)
    assert source.reload_if_changed() is None


def origins(data: LabelledData) -> set[int]:
    assert data.origins is not None
    return set(data.origins.tolist())


def sounds(data: LabelledData) -> set[bytes]:
    return {image.tobytes() for image in data.images}


class Given:
    """A feed that returns these answers in turn, and nothing after a training."""

    def __init__(self, answers: list[LocalData | None]) -> None:
        self._answers = answers

    def reload_if_changed(self) -> LocalData | None:
        return self._answers.pop(0)

    def note_training(self, received_loss: float | None) -> LocalData | None:
        return None


def test_a_task_uses_the_current_data_and_the_agent_is_notified_of_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inbox: Inbox = queue.SimpleQueue()
    worker, seen = Worker(inbox), list[LocalData]()

    def look(task: Task, place: TaskContext, cancelled: object) -> Any:
        seen.append(place.data)
        return update()

    monkeypatch.setattr(worker, "work", look)
    first, more = (LocalData(DIGITS.subset(range(count)), DIGITS.subset([])) for count in (5, 8))
    answers: list[LocalData | None] = [None, more, None]
    store = BlobStore(tmp_path)
    place = TaskContext("pi", store, first, tmp_path, feed=Given(answers))
    events = []
    for _ in range(3):
        worker.start(task(), place)
        while not events or not isinstance(events[-1], WorkDone):
            events.append(inbox.get(timeout=60))
        events.append(None)
    assert [data is more for data in seen] == [False, True, True]
    assert [event for event in events if isinstance(event, DataChanged)] == [DataChanged(more)]


def test_a_restarted_device_keeps_the_sides_of_its_examples(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 20)
    choice = DataChoice(f"npz:{tmp_path / 'a.npz'}")
    train, held = pixels(LocalSource(choice, record=tmp_path / "examples").read())
    save(tmp_path / "a.npz", 60)
    again = pixels(LocalSource(choice, record=tmp_path / "examples").read())
    assert (train <= again[0], held <= again[1], len(again[1])) == (True, True, 12)
    # Without the record, another draw of 12 examples would be held out.
    assert not held <= pixels(LocalSource(choice).read())[1]


def test_a_record_of_other_data_is_ignored(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 20)
    save(tmp_path / "b.npz", 20)
    for name in ("a", "b"):
        source = LocalSource(DataChoice(f"npz:{tmp_path / name}.npz"), record=tmp_path / "examples")
        assert source.read().new == 16
        source.note_training(None)


def test_examples_are_new_until_the_device_has_trained_on_them(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 20)
    choice, record = DataChoice(f"npz:{tmp_path / 'a.npz'}"), tmp_path / "examples"
    source = LocalSource(choice, record=record)
    assert source.read().new == 16
    trained = source.note_training(None)
    assert trained is not None
    assert trained.new == 0
    assert source.note_training(None) is None
    save(tmp_path / "a.npz", 30)
    found = source.reload_if_changed()
    assert found is not None
    assert (len(found.train), found.new) == (24, 8)
    # A restart forgets neither.
    assert LocalSource(choice, record=record).read().new == 8


def test_data_that_cannot_grow_has_nothing_new(tmp_path: Path) -> None:
    source = LocalSource(DataChoice("digits", count=10), record=tmp_path / "examples")
    assert (source.grows, source.read().new, source.note_training(None)) == (False, None, None)
    assert not (tmp_path / "examples").exists()


def test_an_alarm_stands_while_training_helps_also_over_a_restart(tmp_path: Path) -> None:
    save(tmp_path / "a.npz", 20)
    looks = []
    finding = DriftFinding(statistic="loss", p_value=0.001, examples=4)

    def drift(data: LocalData, record: ExampleRecord) -> DriftResult | None:
        fresh = record.is_untested(marks_of_images(data.train.images))
        looks.append(int(fresh.sum()))
        return DriftResult(marks_of_images(data.train.images)[fresh], finding) if len(looks) == 2 else None

    choice, record = DataChoice(f"npz:{tmp_path / 'a.npz'}"), tmp_path / "examples"
    source = LocalSource(choice, record=record, drift=drift)
    source.read()
    source.note_training(None)
    save(tmp_path / "a.npz", 30)
    first, second, third = (source.reload_if_changed() for _ in range(3))
    # The data has changed; an alarm about it; nothing has happened since, all eight are tested.
    assert first is not None
    assert second is not None
    assert (first.alarm, second.alarm, third, looks) == (None, DriftAlarm(finding), None, [8, 8, 0])
    assert LocalSource(choice, record=record).read().alarm == DriftAlarm(finding)
    for loss in (2.0, 1.0):
        source.note_training(loss)
    source = LocalSource(choice, record=record)
    assert source.read().alarm == DriftAlarm(finding, first=2.0, lowest=1.0)
    standing, ended = (source.note_training(loss) for loss in (1.0, 1.0))
    assert standing is not None
    assert ended is not None
    assert (standing.alarm, ended.alarm) == (DriftAlarm(finding, first=2.0, lowest=1.0, vain=1), None)
    assert source.note_training(1.0) is None


def test_equal_examples_are_on_one_side_before_and_after_a_restart(tmp_path: Path) -> None:
    rows = np.repeat(DIGITS.images[:30], 5, axis=0)
    np.savez(tmp_path / "a.npz", images=rows, labels=np.repeat(DIGITS.labels[:30], 5))
    choice, record = DataChoice(f"npz:{tmp_path / 'a.npz'}"), tmp_path / "examples"
    first, again = (LocalSource(choice, record=record).read() for _ in range(2))
    train, held = ({image.tobytes() for image in part.images} for part in (first.train, first.held_out))
    assert (len(train), len(held), len(first.held_out)) == (22, 8, 40)
    assert not train & held
    assert (again.train.images == first.train.images).all()
    assert (again.held_out.images == first.held_out.images).all()


def test_a_half_written_line_counts_once_its_file_has_stayed_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.csv"
    path.write_text("x,state\n" + "1,busy\n" * 9 + "2,busy")
    source = LocalSource(DataChoice(f"csv:{path}?label=state"))
    first = source.read()
    assert len(first.train) + len(first.held_out) == 9
    assert source.reload_if_changed() is None
    later = path.stat().st_mtime + SETTLED_S
    monkeypatch.setattr("edge_client.data.changes.time.time", lambda: later)
    found = source.reload_if_changed()
    assert found is not None
    assert len(found.train) + len(found.held_out) == 10
    assert source.reload_if_changed() is None
