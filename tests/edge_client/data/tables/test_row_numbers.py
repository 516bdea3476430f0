"""The number of a row is not an input unless it is named, whoever wrote the file."""

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas
import pytest

from edge_client.data.said_once import say_once
from edge_client.data.sources import load_source
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names
from tests.edge_client.data.tables.table_files import KINDS, read_table

FRAME = pandas.DataFrame(
    {"temperature": np.linspace(18, 24, 30).round(2), "co2": np.arange(30) % 7, "busy": np.arange(30) % 2}
)
FILTERED = FRAME[FRAME.co2 != 3]


def csv_of(frame: pandas.DataFrame, folder: Path) -> str:
    frame.to_csv(folder / "t.csv")
    return f"csv:{folder / 't.csv'}"


def csv_saved_again(frame: pandas.DataFrame, folder: Path) -> str:
    csv_of(frame, folder)
    pandas.read_csv(folder / "t.csv").to_csv(folder / "t.csv", index=False)
    return f"csv:{folder / 't.csv'}"


def sql_of(frame: pandas.DataFrame, folder: Path) -> str:
    with closing(sqlite3.connect(folder / "t.sqlite")) as database:
        frame.to_sql("readings", database)
    return f"sqlite:{folder / 't.sqlite'}"


def parquet_of(frame: pandas.DataFrame, folder: Path) -> str:
    frame.to_parquet(folder / "t.parquet")
    return f"parquet:{folder / 't.parquet'}"


def named_index(frame: pandas.DataFrame, folder: Path) -> str:
    return parquet_of(frame.rename_axis("reading"), folder)


def r_table(frame: pandas.DataFrame, folder: Path) -> str:
    """As R's write.table does it: the header has no name for the row's."""
    lines = frame.to_csv().splitlines()
    (folder / "t.csv").write_text("\n".join([lines[0].removeprefix(","), *lines[1:], ""]))
    return f"csv:{folder / 't.csv'}"


WRITERS = (csv_of, csv_saved_again, sql_of, parquet_of, named_index, r_table)


@pytest.mark.parametrize(
    "frame", [FRAME, FILTERED, FRAME.sample(frac=1, random_state=0)], ids=["all", "filtered", "shuffled"]
)
@pytest.mark.parametrize("write", WRITERS)
def test_the_inputs_are_the_measured_columns(
    write: Callable[[pandas.DataFrame, Path], str], frame: pandas.DataFrame, tmp_path: Path
) -> None:
    data = load_source(f"{write(frame, tmp_path)}?label=busy")
    assert column_names(data) == ("temperature", "co2")
    np.testing.assert_array_equal(data.images, frame[["temperature", "co2"]].to_numpy(np.float32))


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (csv_of, "(row)"),
        (csv_saved_again, "Unnamed: 0"),
        (sql_of, "index"),
        (parquet_of, "__index_level_0__"),
    ],
)
def test_it_can_be_named_and_ignored_and_is_said_once(
    write: Callable[[pandas.DataFrame, Path], str],
    name: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = write(FILTERED, tmp_path)
    say_once.cache_clear()
    with caplog.at_level(logging.INFO):
        load_source(f"{source}?label=busy")
        load_source(f"{source}?label=busy")
    (message,) = [text for text in caplog.messages if "numbers the rows" in text]
    assert f"column '{name}'" in message
    assert load_source(f"{source}?columns={name},co2&label=busy").images[:, 0].tolist() == [*FILTERED.index]
    assert column_names(load_source(f"{source}?ignore={name}&label=busy")) == ("temperature", "co2")


@pytest.mark.parametrize("kind", KINDS)
def test_a_sensor_that_is_called_index_is_an_input(
    kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [(level, number % 2) for number, level in enumerate([0, 0, 1, 3, 6, 8, 6, 3, 1, 0])]
    with caplog.at_level(logging.INFO):
        data = read_table(kind, tmp_path, ("index", "sunny"), rows, "label=sunny")
    assert data.images[:, 0].tolist() == [0, 0, 1, 3, 6, 8, 6, 3, 1, 0]
    assert "column 'index' is an input: it does not number the rows" in caplog.text


def test_an_index_of_times_needs_no_option(tmp_path: Path) -> None:
    frame = FRAME.set_index(pandas.date_range("2026-11-01", periods=30, freq="min"))
    for write in (csv_of, parquet_of, r_table):
        assert column_names(load_source(f"{write(frame, tmp_path)}?label=busy")) == ("temperature", "co2")
    assert load_source(f"{parquet_of(frame, tmp_path)}?time=__index_level_0__&window=3").images.shape == (
        28,
        3,
        3,
    )


def test_a_separator_behind_each_row_is_no_column(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n1,2,\n3,4,\n")
    assert load_source(f"csv:{tmp_path / 't.csv'}").images.tolist() == [[1, 2], [3, 4]]
    (tmp_path / "t.csv").write_text("a;b;;\n1,5;2;;\n3,5;4;;\n;;;\n")
    assert load_source(f"csv:{tmp_path / 't.csv'}").images.tolist() == [[1.5, 2], [3.5, 4]]


def test_a_table_of_row_numbers_alone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("index,busy\n1,0\n2,1\n")
    with pytest.raises(ConfigError, match=r"no column of numbers but row numbers: state columns="):
        load_source(f"csv:{tmp_path / 't.csv'}?label=busy")
