"""The record of choices beside a model."""

from pathlib import Path

import pytest

from edge_client.inference.providers import record
from tests.edge_client.inference.providers.test_choice import CHOICE


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "a" / "model.onnx"


def test_a_choice_of_the_same_use_is_replaced_and_others_stay(model: Path) -> None:
    record.keep_choice(model, CHOICE)
    batches = CHOICE.model_copy(update={"batch": 32, "provider": "openvino"})
    record.keep_choice(model, batches)
    later = CHOICE.model_copy(update={"circumstances": {"onnxruntime": "1.25.0"}})
    record.keep_choice(model, later)
    assert record.read_choices(model, CHOICE.digest) == (batches, later)
    assert record.recall_choice(model, CHOICE) is None
    assert record.recall_choice(model, later) == later
    assert record.choice_in_use(model, CHOICE.digest) == later
    assert record.read_choices(model, "b" * 64) == ()


def test_the_record_is_bounded(model: Path) -> None:
    for threads in range(record.MAX_CHOICES + 3):
        record.keep_choice(model, CHOICE.model_copy(update={"threads": threads}))
    kept = [choice.threads for choice in record.read_choices(model, CHOICE.digest)]
    assert kept == list(range(3, record.MAX_CHOICES + 3))


def test_a_link_has_the_record_of_its_file(model: Path, tmp_path: Path) -> None:
    model.parent.mkdir()
    model.touch()
    link = tmp_path / "link.onnx"
    link.symlink_to(model)
    record.keep_choice(link, CHOICE)
    assert record.record_path(link) == model.with_name("model.onnx.providers.json")
    assert record.record_path(link).exists()


def test_where_the_folder_cannot_be_written_the_cache_has_the_record(model: Path) -> None:
    model.parent.write_text("not a folder")
    record.keep_choice(model, CHOICE)
    assert record.read_choices(model, CHOICE.digest) == (CHOICE,)


def test_a_copy_takes_the_record_along(model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "b" / "model.onnx"
    record.carry_record(model, copy)
    assert not copy.parent.exists()
    record.keep_choice(model, CHOICE)
    record.carry_record(model, copy)
    assert record.read_choices(copy, CHOICE.digest) == (CHOICE,)


@pytest.mark.parametrize("damaged", ["", "[]", '{"choices": [{"digest": 3}]}'])
def test_a_damaged_record_means_nothing(model: Path, damaged: str) -> None:
    model.parent.mkdir()
    record.record_path(model).write_text(damaged)
    assert record.read_choices(model, CHOICE.digest) == ()
    record.keep_choice(model, CHOICE)
    assert record.read_choices(model, CHOICE.digest) == (CHOICE,)
