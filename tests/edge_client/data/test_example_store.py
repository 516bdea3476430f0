"""The bounded store of recorded rows, and reading it as examples."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import files_of, load_source
from edge_client.data.tables.recorded import ExampleStore, StoreLimits
from schemas.errors import ConfigError

COLUMNS = ("co2", "light")


def row(number: int) -> dict[str, float]:
    return {"co2": float(number), "light": number / 2}


def filled(path: Path, count: int, limits: StoreLimits | None = None, **options: object) -> ExampleStore:
    store = ExampleStore(path, COLUMNS, limits or StoreLimits(), seed=0)
    for number in range(count):
        store.add(row(number), at=100.0 + number, label="busy" if number % 10 == 0 else "idle")
    return store


def test_rows_are_read_as_examples_with_their_labels(tmp_path: Path) -> None:
    filled(tmp_path / "room.sqlite", 20).close()
    data = load_source(f"recorded:{tmp_path / 'room.sqlite'}?label=label")
    assert data.images.tolist() == [[number, number / 2] for number in range(20)]
    assert data.class_names == ("busy", "idle")
    assert np.bincount(data.labels).tolist() == [2, 18]


def test_a_label_joins_its_row_by_id_or_by_time(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    store = ExampleStore(path, COLUMNS, StoreLimits())
    ids = [store.add(row(number), at=100.0 + number) for number in range(10)]
    assert ids[3] == "103000"
    assert store.label("103000", "busy")
    assert not store.label("9", "busy")
    assert store.label_span(106.0, 107.5, "idle") == 2
    data = load_source(f"recorded:{path}?label=label")
    # Rows without a label are left out.
    assert data.images[:, 0].tolist() == [3, 6, 7]
    assert [data.class_names[label] for label in data.labels] == ["busy", "idle", "idle"]
    # A correction replaces the label.
    store.label("103000", "idle")
    assert load_source(f"recorded:{path}?label=label").class_names == ("idle",)
    assert len(load_source(f"recorded:{path}")) == 10


def test_windows_do_not_cross_series_and_stay_when_old_rows_go(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    store = ExampleStore(path, COLUMNS, StoreLimits(most_age_s=1000.0))
    for number in range(30):
        if number == 14:
            store.begin_series()
        store.add(row(number), at=float(number))
    source = f"recorded:{path}?window=4&stride=3"

    def ends() -> list[float]:
        return load_source(source).images[:, 0, -1].tolist()

    # Rows are numbered from 1; windows end at multiples of 3 and lie on one side of row 15, the value 14.
    assert ends() == [5, 8, 11, 17, 20, 23, 26, 29]
    store.trim(1000.0 + 7)
    assert ends() == [11, 17, 20, 23, 26, 29]


def test_of_a_store_that_is_too_large_the_oldest_rows_go(tmp_path: Path) -> None:
    store = filled(tmp_path / "room.sqlite", 5000, StoreLimits(most_bytes=100_000))
    kept = load_source(f"recorded:{tmp_path / 'room.sqlite'}").images[:, 0]
    assert store.used_bytes <= 100_000
    assert 500 < len(kept) < 3000
    # The newest rows without a gap.
    assert kept.tolist() == list(range(5000 - len(kept), 5000))


def test_a_reservoir_keeps_a_sample_of_all_times(tmp_path: Path) -> None:
    filled(tmp_path / "room.sqlite", 5000, StoreLimits(most_bytes=100_000, keep="reservoir"))
    kept = load_source(f"recorded:{tmp_path / 'room.sqlite'}").images[:, 0]
    # The mean of 0 to 4999 is 2499.5, with a standard error of 1443 / sqrt(1000) = 46.
    assert abs(kept.mean() - 2499.5) < 200
    with pytest.raises(ConfigError, match="a reservoir keeps single rows"):
        load_source(f"recorded:{tmp_path / 'room.sqlite'}?window=5")


def test_balanced_classes_lose_the_most_frequent_first(tmp_path: Path) -> None:
    filled(tmp_path / "room.sqlite", 5000, StoreLimits(most_bytes=100_000, balance=True))
    data = load_source(f"recorded:{tmp_path / 'room.sqlite'}?label=label")
    busy, idle = np.bincount(data.labels)
    # A tenth is recorded as busy: of 900 rows an unbalanced store has 90.
    assert busy > 300
    assert busy <= idle < 1.5 * busy


def test_the_oldest_rows_go_by_age(tmp_path: Path) -> None:
    store = filled(tmp_path / "room.sqlite", 100, StoreLimits(most_age_s=30.0))
    store.trim(199.0)
    assert load_source(f"recorded:{tmp_path / 'room.sqlite'}").images[:, 0].tolist() == list(range(69, 100))


@pytest.mark.parametrize(
    ("columns", "why"),
    [(("co2",), "has the columns co2, light"), (("co2", "at"), "column 'at' is one that every store has")],
)
def test_other_columns_are_refused(tmp_path: Path, columns: tuple[str, ...], why: str) -> None:
    filled(tmp_path / "room.sqlite", 1).close()
    with pytest.raises(ConfigError, match=why):
        ExampleStore(tmp_path / "room.sqlite", columns, StoreLimits())


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("hello, this is text and no database, whatever its name")
    with pytest.raises(ConfigError, match="is not a store of examples"):
        ExampleStore(tmp_path / "x.sqlite", COLUMNS, StoreLimits())
    for source in ("recorded", "sqlite"):
        with pytest.raises(ConfigError, match="is not an SQLite file"):
            load_source(f"{source}:{tmp_path / 'x.sqlite'}")
        with pytest.raises(ConfigError, match="there is no such file"):
            load_source(f"{source}:{tmp_path / 'none.sqlite'}")


def test_a_write_by_another_process_is_a_change(tmp_path: Path) -> None:
    path = tmp_path / "room.sqlite"
    assert files_of(f"recorded:{path}?window=3") == (path, tmp_path / "room.sqlite-wal")
