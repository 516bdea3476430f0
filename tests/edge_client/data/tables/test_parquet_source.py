"""A Parquet file gives the examples of the same table in CSV."""

import csv
import datetime
import sys
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import load_source
from schemas.errors import ConfigError

pyarrow = pytest.importorskip("pyarrow")
START = datetime.datetime(2026, 11, 25, 9)
NAMES = ("when", "temperature", "open", "room", "state")


def rows(count: int = 40) -> list[tuple[object, ...]]:
    """Readings of two rooms; the fifth has no temperature."""
    return [
        (
            START + datetime.timedelta(minutes=number),
            None if number == 5 else 20 + number / 3,
            number % 3 == 0,
            "attic" if number < 20 else "cellar",
            ("empty", "busy")[number % 2],
        )
        for number in range(count)
    ]


@pytest.fixture
def both(tmp_path: Path) -> Path:
    """A folder with the same table as `room.csv` and `room.parquet`."""
    from pyarrow import parquet

    parquet.write_table(
        pyarrow.table(dict(zip(NAMES, map(list, zip(*rows(), strict=True)), strict=True))),
        tmp_path / "room.parquet",
        row_group_size=16,
    )
    with (tmp_path / "room.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(NAMES)
        writer.writerows([*row[:2], int(bool(row[2])), *row[3:]] for row in rows())
    return tmp_path


@pytest.mark.parametrize(
    "options",
    [
        "label=state&ignore=when,room&missing=drop",
        "label=state&time=when&group=room&window=4&stride=2&missing=previous",
        "label=temperature&time=when&ignore=state&group=room&window=3&horizon=2&missing=20",
    ],
)
def test_examples_are_those_of_the_same_table_in_csv(both: Path, options: str) -> None:
    expected = load_source(f"csv:{both / 'room.csv'}?{options}")
    found = load_source(f"parquet:{both / 'room.parquet'}?{options}")
    np.testing.assert_array_equal(found.images, expected.images)
    np.testing.assert_array_equal(found.labels, expected.labels)
    assert (found.class_names, found.preprocessing) == (expected.class_names, expected.preprocessing)


def test_a_missing_value_is_named_by_its_row(both: Path) -> None:
    with pytest.raises(ConfigError, match=r"room.parquet row 6.*'temperature'"):
        load_source(f"parquet:{both / 'room.parquet'}?label=state&ignore=when,room")


def test_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no such file"):
        load_source(f"parquet:{tmp_path / 'room.parquet'}?label=state")
    (tmp_path / "room.parquet").write_text("no parquet")
    with pytest.raises(ConfigError, match="is not a Parquet file"):
        load_source(f"parquet:{tmp_path / 'room.parquet'}?label=state")


def test_without_pyarrow_the_message_says_what_to_install(
    both: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"needs pyarrow.*pip install 'edge-federation\[parquet\]'"):
        load_source(f"parquet:{both / 'room.parquet'}?label=state")
