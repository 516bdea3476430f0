"""Tables of SQLite files, and labels that come later than their examples."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edge_client.data.sources import files_of, load_source
from schemas.errors import ConfigError


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Rows of a machine's sensors without labels."""
    path = tmp_path / "machine.csv"
    path.write_text("id,volts,amps\n" + "".join(f"m{n},{n},{n * n}\n" for n in range(6)))
    return path


def test_labels_of_another_file_join_their_rows(machine: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("id,state\nm1,good\nm4,worn\nm1,worn\n")
    source = f"csv:{machine}?id=id&labels={labels}&label=state"
    data = load_source(source)
    # The last line counts; four rows wait for a label.
    assert data.images.tolist() == [[1, 1], [4, 16]]
    assert [data.class_names[label] for label in data.labels] == ["worn", "worn"]
    assert files_of(source) == (machine, labels)


def test_labels_may_be_numbers(machine: Path, tmp_path: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("id,wear\nm1,0.5\nm4,2.25\n")
    data = load_source(f"csv:{machine}?id=id&labels={labels}&label=wear")
    assert data.labels.tolist() == [[0.5], [2.25]]
    assert data.class_names == ("wear",)


def test_labels_without_an_example_are_counted(
    machine: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("id,state\nm1,good\nm9,worn\nm7,worn\n")
    with caplog.at_level(logging.WARNING):
        load_source(f"csv:{machine}?id=id&labels={labels}&label=state")
    assert caplog.messages == [f"{labels}: no example for 2 labels"]
    labels.write_text("id,state\nx1,good\n")
    with pytest.raises(ConfigError, match=r"none of 1 label names an example: compare its column 'id'"):
        load_source(f"csv:{machine}?id=id&labels={labels}&label=state")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("labels=labels.csv&label=state", "needs id=COLUMN"),
        ("id=id&labels=none.csv&label=state", "cannot read none.csv"),
        ("label=volts&ignore=id&unlabelled=maybe", "unlabelled=maybe must be refuse or drop"),
        ("table=x", "no option 'table'"),
    ],
)
def test_wrong_options_are_refused(machine: Path, options: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_source(f"csv:{machine}?{options}")


def test_windows_are_learnt_by_the_label_of_their_last_row(tmp_path: Path) -> None:
    path = tmp_path / "series.csv"
    path.write_text("x,state\n1,\n2,\n3,good\n4,\n5,worn\n")
    data = load_source(f"csv:{path}?label=state&unlabelled=drop&window=2")
    assert data.images[:, 0].tolist() == [[2, 3], [4, 5]]
    path.write_text("x,state\n1,\n2,\n")
    with pytest.raises(ConfigError, match="none of 2 examples has a label yet"):
        load_source(f"csv:{path}?label=state&unlabelled=drop")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "plant.sqlite"
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE readings (temp REAL, note TEXT, ok INTEGER)")
        made.executemany(
            "INSERT INTO readings VALUES (?, ?, ?)", [(20.5, "a", 1), (None, "b", 0), (22.0, "c", 1)]
        )
        made.execute("CREATE TABLE other (x REAL)")
    return path


def test_a_table_of_a_database_is_read_as_a_file_of_text_is(database: Path) -> None:
    source = f"sqlite:{database}?table=readings&label=ok&ignore=note"
    data = load_source(f"{source}&missing=previous")
    assert data.images.tolist() == [[20.5], [20.5], [22.0]]
    assert data.labels.tolist() == [1, 0, 1]
    with pytest.raises(ConfigError, match="table 'readings' row 2: column 'temp' has no value: say what"):
        load_source(source)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("", "has no table '': state table=NAME; it has other, readings"),
        ("&table=reading", "did you mean 'readings'"),
    ],
)
def test_a_table_must_be_there(database: Path, table: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        load_source(f"sqlite:{database}?label=ok{table}")
