"""What labels are is judged by their whole column; a class may be called as a missing number."""

import logging
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.data.tables.recorded import ExampleStore, StoreLimits
from edge_client.data.tasks.labels import in_task
from edge_server.config.load import load_config
from edge_server.config.test_data import load_test_data
from schemas.errors import ConfigError, PeerError
from schemas.values import ModelSpec
from tests.edge_client.agent.session.by_hand import task
from tests.edge_client.data.tables.table_files import KINDS, read_table

WORDS = ("none", "NA", "null", "n/a", "unknown", "offline")


def classes(data) -> list[str]:
    return [data.class_names[label] for label in data.labels]


@pytest.mark.parametrize("options", ["label=y&missing=drop", "label=y&unlabelled=drop"])
@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_class_may_be_called_as_a_missing_number(
    kind: str, word: str, options: str, tmp_path: Path
) -> None:
    rows = [(1.5, word), (2.5, "tap"), (3.5, None), (4.5, word)]
    data = read_table(kind, tmp_path, ("x", "y"), rows, options)
    assert classes(data) == [word, "tap", word]


@pytest.mark.parametrize("word", WORDS)
def test_so_may_a_recorded_one_and_one_that_comes_late(word: str, tmp_path: Path) -> None:
    store = ExampleStore(tmp_path / "room.sqlite", ("co2",), StoreLimits())
    for number, label in enumerate((word, "tap", None)):
        store.add({"co2": number}, at=float(number), ident=f"m{number}", label=label)
    store.close()
    assert classes(load_source(f"recorded:{tmp_path / 'room.sqlite'}?label=label")) == [word, "tap"]
    (tmp_path / "late.csv").write_text(f"id,label\nm0,tap\nm1,\nm2,{word}\n")
    late = load_source(
        f"recorded:{tmp_path / 'room.sqlite'}?label=label&labels={tmp_path / 'late.csv'}&ignore=label"
    )
    assert classes(late) == ["tap", word]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        (("1", "walk", "2"), ["1", "walk", "2"]),
        (("none", "1_5", "none"), ["none", "1_5", "none"]),
        (("true", "false", "true"), ["true", "false", "true"]),
        (("none", "none", "none"), ["none", "none", "none"]),
    ],
)
def test_one_word_makes_all_labels_of_a_column_names(
    kind: str, labels: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    rows = [(number + 0.5, label) for number, label in enumerate(labels)]
    assert classes(read_table(kind, tmp_path, ("x", "y"), rows, "label=y")) == expected


def test_a_word_behind_the_first_block_does_so_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_client.data.tables.rows.BLOCK", 2)
    rows = [(number + 0.5, label) for number, label in enumerate(("1", "2", "1", "walk"))]
    assert classes(read_table("csv", tmp_path, ("x", "y"), rows, "label=y")) == ["1", "2", "1", "walk"]


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_with_a_word_for_a_missing_one_stay_numbers(kind: str, tmp_path: Path) -> None:
    rows = [(1.5, "20.5"), (2.5, "unavailable"), (3.5, "21.5")]
    data = read_table(kind, tmp_path, ("x", "y"), rows, "label=y&unlabelled=drop")
    assert data.labels.tolist() == [[20.5], [21.5]]


@pytest.mark.parametrize("kind", KINDS)
def test_few_whole_numbers_below_zero_are_classes_and_numbers_where_these_are_learnt(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [(number + 0.5, (-1, 1, 1, -1)[number]) for number in range(4)]
    with caplog.at_level(logging.INFO):
        data = read_table(kind, tmp_path, ("x", "y"), rows, "label=y")
    assert "column 'y' has the classes '-1', '1': kind=numbers takes them for numbers" in caplog.text
    assert data.class_names == ("-1", "1")
    assert data.labels.tolist() == [0, 1, 1, 0]
    assert in_task(data, "regression", ()).labels.tolist() == [[-1], [1], [1], [-1]]
    stated = load_source(f"{kind}:{tmp_path / f'table.{kind}'}?label=y&kind=numbers")
    assert stated.labels.tolist() == [[-1], [1], [1], [-1]]
    assert in_task(stated, "classification", ("-1", "1")).labels.tolist() == [0, 1, 1, 0]


def test_many_whole_numbers_below_zero_are_measured(tmp_path: Path) -> None:
    rows = [(number + 0.5, number - 10) for number in range(20)]
    data = read_table("csv", tmp_path, ("x", "degrees"), rows, "label=degrees")
    assert data.labels[:, 0].tolist() == list(range(-10, 10))
    named = load_source(f"csv:{tmp_path / 'table.csv'}?label=degrees&kind=classes")
    assert named.class_names[:2] == ("-10", "-9")
    with pytest.raises(ConfigError, match=r"column 'x' has fractions, which are not classes"):
        load_source(f"csv:{tmp_path / 'table.csv'}?label=x&kind=classes")


def test_an_archives_minus_one_and_one_are_classes_where_classes_are_learnt(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=np.zeros((3, 4), np.float32), labels=np.array([-1.0, 1.0, -1.0]))
    data = in_task(load_source(f"npz:{tmp_path / 'a.npz'}"), "classification", ())
    assert (data.class_names, data.labels.tolist()) == (("-1", "1"), [0, 1, 0])


def test_numbers_without_names_find_their_class_among_negative_ones(tmp_path: Path) -> None:
    data = read_table("csv", tmp_path, ("x", "y"), [(0.5, 0), (1.5, 1), (2.5, 0)], "label=y")
    assert in_task(data, "classification", ("-1", "0", "1")).labels.tolist() == [1, 2, 1]


def test_a_text_among_measured_labels_is_a_broken_row(tmp_path: Path) -> None:
    rows = [(number + 0.5, f"{number}.25") for number in range(20)] + [(20.5, "ERR")]
    data = read_table("csv", tmp_path, ("x", "y"), rows, "label=y")
    assert data.class_names == ("y",)
    assert data.labels[:, 0].tolist() == [number + 0.25 for number in range(20)]
    assert data.skipped is not None


@pytest.mark.parametrize("name", ["classification", "regression", "multi-label", "anomaly"])
def test_rows_without_a_stated_label_are_for_anomalies_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / "room.csv").write_text("co2,light\n" + "400.5,1.5\n700.5,2.5\n" * 10)
    source = f"csv:{tmp_path / 'room.csv'}"
    data, model = load_source(source), ModelSpec(name="mlp", input_shape=(2,), num_classes=2, task=name)
    config = load_config("fedavg", [f"data.source={source}", f"model.task={name}", "model.name=mlp"])
    if name == "anomaly":
        LocalData(data, data).check(task(model=model))
        assert load_test_data(config) is not None
        return
    with pytest.raises(PeerError, match=r"the rows have no labels: .* label=COLUMN"):
        LocalData(data, data).check(task(model=model))
    with pytest.raises(ConfigError, match=r"\[data\] source: the rows have no labels: .* label=COLUMN"):
        load_test_data(config)
