"""Numbers, truth values and broken rows of every kind of table."""

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.said_once import say_once
from edge_client.data.sources import load_source
from edge_client.data.tables.recorded import ExampleStore, StoreLimits
from schemas.errors import ConfigError
from tests.edge_client.data.tables.table_files import KINDS, read_table

METER = [45_678_912 + 3 * (number % 4) + 7 * number for number in range(40)]


@pytest.mark.parametrize("kind", KINDS)
def test_changes_of_large_totals_are_right_to_the_last_digit(kind: str, tmp_path: Path) -> None:
    rows = [(total, number) for number, total in enumerate(METER)]
    data = read_table(kind, tmp_path, ("wh", "n"), rows, "label=wh&columns=n&window=8&horizon=1&change=yes")
    assert data.labels[:, 0].tolist() == np.diff(METER)[7:].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_mean_and_deviation_are_those_of_the_numbers_in_the_file(kind: str, tmp_path: Path) -> None:
    data = read_table(kind, tmp_path, ("wh",), [(total,) for total in METER], "")
    assert data.preprocessing.mean[0] == pytest.approx(np.mean(METER), abs=1e-6)
    assert data.preprocessing.std[0] == pytest.approx(np.std(METER), abs=1e-6)


def test_inputs_that_float32_cannot_tell_apart_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [(45_678_912 + number, number / 7) for number in range(40)]
    with caplog.at_level(logging.WARNING):
        read_table("csv", tmp_path, ("wh", "volts"), rows, "label=volts&kind=numbers")
    (message,) = caplog.messages
    # Between 2^25 and 2^26 float32 has every fourth whole number.
    assert "column 'wh': networks (float32) tell its largest values apart in steps of 4" in message
    assert "differences" in message


def test_rows_that_were_recorded_above_two_to_the_24_make_windows(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    store = ExampleStore(path, ("co2",), StoreLimits())
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("INSERT INTO sqlite_sequence VALUES ('examples', 20000000)")
    for number in range(12):
        store.add({"co2": float(number)}, at=100.0 + number)
    store.close()
    assert load_source(f"recorded:{path}?window=4").images.shape == (9, 1, 4)


@pytest.mark.parametrize("kind", KINDS)
def test_truth_values_in_words_are_ones_and_zeros(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [("true", "on", "Yes", 1.5), ("False", "off", "no", 2.5), ("TRUE", "unavailable", "no", 3.5)]
    with caplog.at_level(logging.INFO):
        data = read_table(kind, tmp_path, ("door", "lamp", "home", "x"), rows, "missing=previous")
    assert data.images.tolist() == [[1, 1, 1, 1.5], [0, 0, 0, 2.5], [1, 0, 0, 3.5]]
    assert "'lamp' has truth values: off is 0, on is 1" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("word", ["unavailable", "unknown", "NaN", "N/A", "-"])
def test_a_word_for_no_number_is_a_missing_value(kind: str, word: str, tmp_path: Path) -> None:
    rows = [("20.5", "a"), (word, "b"), ("22.5", "a")]
    with pytest.raises(ConfigError, match="column 't' has no value: say what to do with missing=drop"):
        read_table(kind, tmp_path, ("t", "y"), rows, "label=y")
    (tmp_path / f"table.{kind}").unlink()
    assert read_table(kind, tmp_path, ("t", "y"), rows, "label=y&missing=drop").images[:, 0].tolist() == [
        20.5,
        22.5,
    ]


BROKEN = ["1,2,3", "1", "x,a", "1e39,a", "\0\0\0\0,a"]


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_row_is_left_out_counted_and_named(
    line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{number},a\n" for number in range(20)) + f"{line}\n20,b\n")
    say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        data = load_source(f"csv:{path}?label=y")
    assert data.images[:, 0].tolist() == list(range(21))
    assert data.skipped is not None
    assert (data.skipped.files, data.skipped.of, data.skipped.what) == (1, 22, "rows")
    assert "line 22" in data.skipped.first
    # The server hears of it: a value stays on the device.
    assert "ERR" not in data.skipped.first
    assert "1 broken row skipped; the first:" in caplog.text
    with pytest.raises(
        ConfigError, match=r"1 of 22 rows are broken, more than broken=0 allows; the first: .*line 22"
    ):
        load_source(f"csv:{path}?label=y&broken=0")


@pytest.mark.parametrize("kind", ["parquet", "sqlite"])
def test_a_text_among_numbers_is_a_broken_row_of_a_database_too(kind: str, tmp_path: Path) -> None:
    rows = [(str(number), "a") for number in range(20)] + [("ERR", "b")]
    data = read_table(kind, tmp_path, ("x", "y"), rows, "label=y")
    assert data.images[:, 0].tolist() == list(range(20))
    assert data.class_names == ("a",)


def test_no_window_reaches_over_a_broken_row(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x\n" + "".join(f"{number}\n" for number in range(15)) + "x\n15\n16\n")
    windows = load_source(f"csv:{path}?window=3").images[:, 0]
    assert windows[-1].tolist() == [12, 13, 14]
    assert len(windows) == 13


def test_a_number_with_an_underscore_is_a_name(tmp_path: Path) -> None:
    data = read_table("csv", tmp_path, ("x", "room"), [(1, "1_2"), (2, "2_1"), (3, "1_2")], "label=room")
    assert data.class_names == ("1_2", "2_1")


def test_a_decimal_comma_has_the_remedy_of_its_kind_of_table(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text('{"x": "1,5", "y": "a"}\n')
    with pytest.raises(ConfigError, match="'x' is not a number: write it with a decimal point"):
        load_source(f"jsonl:{tmp_path / 't.jsonl'}?label=y&columns=x")
