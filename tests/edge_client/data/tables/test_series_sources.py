"""A window per row, as lists in Parquet, Arrow and JSON lines, and JSON lines as such."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import load_source
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
feather = pytest.importorskip("pyarrow.feather")
pandas = pytest.importorskip("pandas")

GENERATOR = np.random.default_rng(0)
WINDOWS = GENERATOR.normal(size=(6, 2, 5)).round(3)
STATES = ["idle", "wave", "idle", "wave", "wave", "idle"]
FORMATS = ("parquet", "arrow", "feather", "jsonl")


def save(folder: Path, kind: str, columns: dict[str, list[object]]) -> str:
    """A file with these columns, written by its usual writer; its source."""
    path, table = folder / f"windows.{kind}", pyarrow.table(columns)
    if kind == "parquet":
        parquet.write_table(table, path, row_group_size=4)
    elif kind == "arrow":
        with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
            writer.write_table(table, max_chunksize=4)
    elif kind == "feather":
        pandas.DataFrame(columns).to_feather(path)
    else:
        pandas.DataFrame(columns).to_json(path, orient="records", lines=True)
    return f"{kind}:{path}"


def as_lists(windows: np.ndarray = WINDOWS) -> dict[str, list[object]]:
    return {"x": windows[:, 0].tolist(), "y": windows[:, 1].tolist(), "state": list(STATES)}


@pytest.mark.parametrize("kind", FORMATS)
def test_each_row_of_lists_is_an_example(tmp_path: Path, kind: str) -> None:
    data = load_source(f"{save(tmp_path, kind, as_lists())}?label=state")
    np.testing.assert_array_equal(data.images, WINDOWS.astype(np.float32))
    assert [data.class_names[label] for label in data.labels] == STATES
    assert column_names(data) == ("x", "y")


@pytest.mark.parametrize("kind", FORMATS)
def test_shorter_windows_stay_inside_their_row(tmp_path: Path, kind: str) -> None:
    """Rows of 5 have windows of 2 from 0 and 2 on: 12 in all, and a stated group is coarser than rows."""
    columns = as_lists() | {"device": ["a", "a", "a", "b", "b", "b"]}
    data = load_source(f"{save(tmp_path, kind, columns)}?label=state&group=device&window=2&stride=2")
    expected = np.stack([WINDOWS[:, :, 0:2], WINDOWS[:, :, 2:4]], axis=1).reshape(12, 2, 2)
    np.testing.assert_array_equal(data.images, expected.astype(np.float32))


@pytest.mark.parametrize("kind", FORMATS)
def test_single_values_beside_lists_repeat_and_other_lists_are_no_input(tmp_path: Path, kind: str) -> None:
    columns = as_lists() | {"height": [1.5] * 6, "box": [[1, 2]] * 6, "tags": [["a", "b", "c", "d", "e"]] * 6}
    source = save(tmp_path, kind, columns)
    data = load_source(f"{source}?label=state&ignore=box,tags")
    assert column_names(data) == ("x", "y", "height")
    assert (data.images[:, 2] == 1.5).all()
    with pytest.raises(ConfigError, match=r"column 'box' is not a number.*ignore=box"):
        load_source(f"{source}?label=state")


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_lists_of_other_lengths_are_refused_unless_a_window_is_stated(tmp_path: Path, kind: str) -> None:
    columns = {"x": [[1.0, 2.0], [3.0, 4.0, 5.0]]}
    source = save(tmp_path, kind, columns)
    with pytest.raises(
        ConfigError, match=r"(row|line) 2: a series of 3 values, and of 2 in the first.*window=NUMBER"
    ):
        load_source(source)
    assert load_source(f"{source}?window=2").images[:, 0].tolist() == [[1, 2], [3, 4], [4, 5]]
    uneven = save(tmp_path, kind, {"x": [[1.0, 2.0], [3.0]], "y": [[1.0, 2.0], [3.0, 4.0]]})
    with pytest.raises(ConfigError, match=r"2: series of different lengths: 'x' 1, 'y' 2"):
        load_source(uneven)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl"])
def test_a_missing_value_in_a_list_drops_its_whole_example(tmp_path: Path, kind: str) -> None:
    source = save(tmp_path, kind, {"x": [None, [1.0, 2.0], [None, 4.0], [7.0, 8.0]]})
    with pytest.raises(ConfigError, match=r"1: column 'x' has no value"):
        load_source(source)
    assert load_source(f"{source}?missing=drop").images[:, 0].tolist() == [[1, 2], [7, 8]]


@pytest.mark.parametrize("kind", FORMATS)
def test_plain_rows_are_those_of_pandas(tmp_path: Path, kind: str) -> None:
    columns = {"a": [1.5, 2.5, None], "open": [True, False, True], "room": ["attic", "hall", "attic"]}
    data = load_source(f"{save(tmp_path, kind, columns)}?label=room&missing=0")
    np.testing.assert_array_equal(data.images, [[1.5, 1], [2.5, 0], [0, 1]])
    assert data.class_names == ("attic", "hall")


def test_units_are_those_of_the_columns_metadata(tmp_path: Path) -> None:
    from edge_client.data.tables.arrow_table import ArrowTable
    from edge_client.data.tables.parquet_table import ParquetTable

    fields = [pyarrow.field("t", pyarrow.float64(), metadata={"unit": "°C"}), ("n", pyarrow.int64())]
    table = pyarrow.table({"t": [1.0], "n": [1]}, schema=pyarrow.schema(fields))
    parquet.write_table(table, tmp_path / "a.parquet")
    feather.write_feather(table, tmp_path / "a.feather")
    assert ParquetTable(tmp_path / "a.parquet").units == {"t": "°C"}
    assert ArrowTable(tmp_path / "a.feather").units == {"t": "°C"}


def test_objects_inside_objects_have_names_with_points(tmp_path: Path) -> None:
    lines = [{"t": 1, "air": {"co2": 400 + n, "room": {"h": n}}, "ok": n % 2 == 0} for n in range(4)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)))
    data = load_source(f"jsonl:{tmp_path / 'a.jsonl'}?label=ok&time=t")
    expected = pandas.json_normalize(lines)
    assert column_names(data) == ("air.co2", "air.room.h")
    np.testing.assert_array_equal(data.images, expected[list(column_names(data))])
    assert data.labels.tolist() == expected["ok"].astype(int).tolist()


def test_keys_that_come_later_are_columns_and_those_that_lack_are_missing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n\n{"b": 2, "a": null}\n')
    data = load_source(f"jsonl:{tmp_path / 'a.jsonl'}?missing=-1")
    assert (column_names(data), data.images.tolist()) == (("a", "b"), [[1, -1], [-1, 2]])


def test_a_key_behind_the_first_thousand_objects_is_left_out_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n' * 1000 + '{"a": 2, "battery": 3}\n')
    with caplog.at_level(logging.WARNING):
        assert column_names(load_source(f"jsonl:{tmp_path / 'a.jsonl'}")) == ("a",)
    assert "'battery'" in caplog.text


DEEP = pytest.param("[" * 100_000, id="deep")


@pytest.mark.parametrize("half", ['{"a": 3, "st', '{"a": 3.', "{", DEEP])
def test_a_half_written_last_line_waits(tmp_path: Path, half: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n' + half)
    with caplog.at_level(logging.INFO):
        assert len(load_source(f"jsonl:{tmp_path / 'a.jsonl'}")) == 2
    assert "line 3, the last one, is half written: it is left out" in caplog.text
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n' + half + '\n{"a": 4}\n')
    with pytest.raises(ConfigError, match=r"a.jsonl line 3 is not JSON"):
        load_source(f"jsonl:{tmp_path / 'a.jsonl'}")


@pytest.mark.parametrize(
    "text",
    ['[{"a": 1}, {"a": 2}]', '{\n"a": [1]\n}\n', '{"a": 1}\n3\n', '{"a":{"0":1,"1":2},"b":{"0":3,"1":4}}'],
)
def test_other_json_is_refused_with_what_writes_lines(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(ConfigError, match=r"expected an object on each line, as pandas"):
        load_source(f"jsonl:{tmp_path / 'a.jsonl'}")
