"""Rows and windows of tables as examples; errors name file, line, column and remedy."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import files_of, load_source
from edge_client.data.tables import rows
from edge_client.data.tables.examples import window_ends
from schemas.errors import ConfigError

ROOM = """date,CO2,light,room,busy
2026-01-01 00:00,400,1.5,a,yes
2026-01-01 00:01,410,2.5,a,no
2026-01-01 00:02,420,3.5,a,no
2026-01-01 00:00,500,4.5,b,yes
2026-01-01 00:01,520,5.5,b,no
"""


@pytest.fixture
def room(tmp_path: Path) -> Path:
    path = tmp_path / "room.csv"
    path.write_text(ROOM)
    return path


def read(path: Path, options: str, part: str = ""):
    return load_source(f"csv:{path}?{options}{part}")


def test_every_column_of_numbers_is_an_input_and_text_names_classes(room: Path) -> None:
    data = read(room, "label=busy&ignore=date,room")
    assert data.images.tolist() == [[400, 1.5], [410, 2.5], [420, 3.5], [500, 4.5], [520, 5.5]]
    assert data.class_names == ("no", "yes")
    assert data.named
    assert data.labels.tolist() == [1, 0, 0, 1, 0]


def test_inputs_have_mean_0_and_standard_deviation_1(room: Path) -> None:
    inputs = read(room, "label=busy&columns=CO2,light").inputs()
    assert inputs.mean(axis=0) == pytest.approx([0, 0], abs=1e-6)
    assert inputs.std(axis=0) == pytest.approx([1, 1], abs=1e-6)


def test_measured_labels_are_numbers_with_the_columns_names(room: Path) -> None:
    data = read(room, "label=light,CO2&columns=CO2")
    assert data.class_names == ("light", "CO2")
    assert data.labels[0].tolist() == [1.5, 400]
    # Light has mean 3.5 and variance 2.
    assert data.preprocessing.target_mean == (3.5, 450)
    assert data.preprocessing.target_std[0] == pytest.approx(np.sqrt(2))


def test_without_a_label_examples_are_unlabelled(room: Path) -> None:
    assert read(room, "ignore=date,room,busy").labels.tolist() == [0, 0, 0, 0, 0]


def test_a_window_is_a_series_of_each_column_that_stays_in_its_group(room: Path) -> None:
    data = read(room, "label=busy&columns=CO2&group=room&window=2")
    assert data.images.tolist() == [[[400, 410]], [[410, 420]], [[500, 520]]]
    # Each has the label of its last row.
    assert data.labels.tolist() == [0, 0, 0]
    assert read(room, "columns=CO2&group=room&window=2&stride=2").images.tolist() == [
        [[400, 410]],
        [[500, 520]],
    ]


def test_a_forecast_learns_what_follows_the_window(room: Path) -> None:
    data = read(room, "label=CO2&ignore=light,busy&time=date&group=room&window=1&horizon=1")
    assert data.images.tolist() == [[[400]], [[410]], [[500]]]
    assert data.labels.tolist() == [[410], [420], [520]]
    assert data.class_names == ("CO2+1",)
    change = read(room, "label=CO2&columns=CO2,light&group=room&window=1&horizon=2&change=yes")
    assert change.labels.tolist() == [[10, 20]]
    assert change.class_names == ("CO2+1 change", "CO2+2 change")


def test_parts_of_a_table_are_its_beginning_and_its_end(room: Path) -> None:
    assert read(room, "columns=CO2", "#train").images.tolist() == [[400], [410], [420], [500]]
    assert read(room, "columns=CO2", "#test").images.tolist() == [[520]]


def test_windows_end_within_their_series() -> None:
    fourth = np.arange(6) == 3
    assert window_ends(7, fourth, window=3, stride=1).tolist() == [2, 3, 6]
    assert window_ends(7, None, window=3, stride=2, after=1).tolist() == [2, 4]
    assert window_ends(2, None, window=3, stride=1).tolist() == []


def test_a_first_column_without_a_name_is_the_number_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "numbered.txt"
    path.write_text('"x","y"\n"1",2.5,0\n"2",3.5,1\n')
    data = read(path, "label=y")
    assert data.images.tolist() == [[2.5], [3.5]]
    assert data.labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("missing", "rows"),
    [("drop", [[1.0], [3.0]]), ("previous", [[1.0], [1.0], [3.0]]), ("-1", [[1.0], [-1.0], [3.0]])],
)
def test_missing_numbers_are_filled_as_stated(tmp_path: Path, missing: str, rows: list[list[float]]) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("x,y\n1,0\nNA,1\n3,0\n")
    assert read(path, f"label=y&missing={missing}").images.tolist() == rows


def test_a_previous_number_is_one_of_the_same_series(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("x,room\n1,a\n,a\n,b\n")
    with pytest.raises(ConfigError, match="line 4: column 'x' has no value"):
        read(path, "group=room&missing=previous")


def test_rows_without_a_class_are_left_out_if_that_is_stated(tmp_path: Path) -> None:
    path = tmp_path / "gaps.csv"
    path.write_text("x,y\n1,yes\n2,\n3,no\n")
    data = read(path, "label=y&missing=drop")
    assert data.class_names == ("no", "yes")
    assert data.images.tolist() == [[1], [3]]


def test_blocks_of_rows_are_joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "BLOCK", 3)
    path = tmp_path / "long.csv"
    path.write_text("x,name\n" + "".join(f"{number},{'n' * (number % 4 + 1)}\n" for number in range(8)))
    data = read(path, "label=name")
    assert data.images[:, 0].tolist() == list(range(8))
    assert [data.class_names[label] for label in data.labels] == ["n", "nn", "nnn", "nnnn"] * 2


WRONG = [
    ("a,b\n1,2\n", "label=c", r"t\.csv has no column 'c'"),
    ("a,b\n1,2\n", "lable=b", r"no option 'lable' \(did you mean 'label'\?\)"),
    ("a,b\n1,x\n", "label=a", r"line 2: column 'b' is not a number: leave the column out with ignore=b"),
    ("a,b\n1,2\n3\n", "label=b", r"line 3: 1 value for 2 columns"),
    ("a,b\n1,2\n,2\n", "label=b", r"line 3: column 'a' has no value: say what to do with missing=drop"),
    ("a,b\n1,2\ninf,2\n", "label=b", r"line 3: column 'a' is too large: numbers must be finite"),
    ("a,b\n1,2\nx,2\n", "label=b", r"line 3: column 'a' is not a number"),
    ("a,a\n1,2\n", "", r"line 1: two columns are called 'a'"),
    ("a,b\n", "", r"t\.csv has no rows"),
    ("a,b\n1,2\n", "label=b&window=2", r"window=2 and horizon=0 need a series of 2 rows, and the file has 1"),
    ("a,b\n1,2\n", "label=b&window=0", r"window=0 is not a whole number of at least 1"),
    ("a,b\n1,2\n", "label=b&horizon=1", r"horizon=1 forecasts labels after a window: state label and window"),
    ("a,b\n1,2\n", "label=b&missing=ignore", r"missing=ignore is neither refuse, drop, previous nor"),
    ("a,b,c\n2,2,0\n1,2,0\n", "label=b&time=a", r"row 2 is earlier than row 1: sort the file by 'a'"),
    ("a,b\n1,2\n", "label", r"options are written \?key=value&key=value"),
    ("a,b\n1,2\n", "label=b&label=a", r"an option is stated twice"),
    ("b\n1\n", "label=b", r"no column of numbers to learn from"),
    ("a,b\n1,2\n", "label=b&missing=nan", r"missing=nan is neither"),
    ("a,b\n,2\n,3\n", "label=b&missing=drop", r"every row lacks a value: fill them"),
    (
        "a,b\n1,yes\n1,\n",
        "label=b",
        r"line 3: column 'b' has no value: leave such rows out with unlabelled=drop",
    ),
    ("a,b\n1,2\n1,16777217\n", "label=b", r"column 'b'\[1\] is 16777217.0: at most 100000 classes"),
    ("a,busy\n1,2\n", "label=bussy", r"has no column 'bussy' for label= \(did you mean 'busy'\?\)"),
    ("a,b\n1,2\n", "label=b&group=room", r"has no column 'room' for group="),
    ("a,b\n1,2\n", "label=b&sequence=seq", r"has no column 'seq' for sequence= \(known: a, b\)"),
    ("a,b,s\n1,2,x\n", "label=b&sequence=s", r"column 's' is not a number: sequence= names a column of"),
    ("a,b\n1,2\n\n\nx,2\n", "label=b", r"line 5: column 'a' is not a number"),
]


@pytest.mark.parametrize(("text", "options", "message"), WRONG)
def test_a_table_that_cannot_be_used_says_where_and_what_to_do(
    tmp_path: Path, text: str, options: str, message: str
) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read(tmp_path / "t.csv", options)


def test_a_file_that_is_no_text_or_is_not_there_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,Temperatur \xb0C\n1,2\n")
    with pytest.raises(ConfigError, match="is not text in UTF-8: state another, such as encoding=cp1252"):
        read(tmp_path / "t.csv", "")
    with pytest.raises(ConfigError, match="cannot read"):
        read(tmp_path / "none.csv", "")


def test_a_device_looks_at_the_file_for_changes(room: Path) -> None:
    assert files_of(f"csv:{room}?label=busy") == (room,)
