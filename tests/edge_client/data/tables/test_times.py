"""Times are compared as times, and windows end where a series has a gap."""

import logging
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas
import pytest

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.data.tables.values import Times, parse_gap
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names
from tests.edge_client.data.tables.table_files import KINDS, read_table

SERIES = pandas.date_range("2026-11-29 23:40", periods=30, freq="53min")
FORMATS = [
    "%Y-%m-%d %H:%M",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M:%S %p",
    "%d.%m.%y, %H:%M",
    "%d-%m-%Y %H.%M.%S",
    "%Y/%m/%d %H:%M",
    "%Y%m%d%H%M",
    "%Y%m%d%H%M%S",
]


def seconds(texts: list[str], stated: str | None = None) -> np.ndarray:
    times = Times(stated)
    times.add(texts)
    return times.seconds("column 't'")[0]


@pytest.mark.parametrize("form", FORMATS)
def test_local_times_are_what_pandas_reads(form: str) -> None:
    texts = [*SERIES.strftime(form)]
    expected = pandas.to_datetime(texts, format=form).to_numpy("datetime64[us]").astype(np.int64) / 1e6
    np.testing.assert_allclose(seconds(texts), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(seconds(texts, form), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("form", ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M:%S+00:00", "%Y-%m-%d %H:%M:%S UTC"])
def test_offsets_count(form: str) -> None:
    expected = [time.timestamp() for time in SERIES.tz_localize("UTC")]
    assert seconds([*SERIES.strftime(form)]).tolist() == expected
    zoned = SERIES.tz_localize("UTC").tz_convert("Asia/Kolkata")
    assert seconds([time.isoformat() for time in zoned]).tolist() == expected


@pytest.mark.parametrize("unit", [1, 1e3, 1e6, 1e9])
def test_numbers_since_1970_are_seconds_or_parts_of_them(unit: float) -> None:
    texts = [f"{time.timestamp() * unit:.0f}" for time in SERIES]
    np.testing.assert_allclose(seconds(texts), [time.timestamp() for time in SERIES], rtol=0, atol=1e-5)


def test_hours_of_a_day_and_the_end_of_one() -> None:
    assert seconds(["9:59", "10:00", "24:00"]).tolist() == [35_940, 36_000, 86_400]
    assert np.diff(seconds(["30.11.2026 24:00", "01.12.2026 00:15"])).tolist() == [900]


def test_days_and_months_are_told_by_the_whole_column_or_asked() -> None:
    assert np.diff(seconds(["01/02/2026", "12/02/2026", "13/02/2026"])).tolist() == [11 * 86_400, 86_400]
    assert np.diff(seconds(["01/12/2026", "01/13/2026"])).tolist() == [86_400]
    with pytest.raises(ConfigError, match="days and months cannot be told apart, state time-format="):
        seconds(["01/02/2026", "02/03/2026"])
    assert np.diff(seconds(["01/02/2026", "02/02/2026"], "%d/%m/%Y")).tolist() == [86_400]


def test_what_is_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="is not a time that is understood: state one like time-format="):
        seconds(["Monday", "Tuesday"])
    with pytest.raises(ConfigError, match="is not a time that is understood: state one that fits"):
        seconds(["01.02.2026"], "%d/%m/%Y")


def series(
    kind: str, folder: Path, times: list[object], options: str = "", extra: tuple[object, ...] = ()
) -> LabelledData:
    names = ("t", "x", "room")[: 3 if extra else 2]
    rows = [(time, number, *extra[number : number + 1]) for number, time in enumerate(times)]
    return read_table(kind, folder, names, rows, f"time=t{options and '&'}{options}")


ASCENDING = [
    ["30.11.2026 23:50", "01.12.2026 00:00"],
    ["9:59", "10:00"],
    ["2026-03-01T00:30:00+02:00", "2026-02-28T23:00:00Z"],
    ["999", "1000"],
    ["11/30/2026 11:59 PM", "12/01/2026 12:01 AM"],
]


@pytest.mark.parametrize("times", ASCENDING)
@pytest.mark.parametrize("kind", KINDS)
def test_times_ascend_as_times(kind: str, times: list[object], tmp_path: Path) -> None:
    assert series(kind, tmp_path, times).images[:, 0].tolist() == [0, 1]
    (tmp_path / f"table.{kind}").unlink()
    with pytest.raises(ConfigError, match=r"row 2 is earlier than row 1: sort the file by 't'"):
        series(kind, tmp_path, times[::-1])


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Sydney", "Europe/London"])
def test_the_hour_that_comes_twice_in_autumn_is_in_order(
    zone: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    spans = {"Australia/Sydney": (2026, 4, 4, 12), "America/New_York": (2026, 11, 1, 3)}
    begin = datetime(*spans.get(zone, (2026, 10, 24, 22)), tzinfo=ZoneInfo("UTC"))
    local = [
        (begin + timedelta(minutes=5 * step)).astimezone(ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")
        for step in range(60)
    ]
    assert local != sorted(local)
    with caplog.at_level(logging.INFO):
        data = series("csv", tmp_path, list(local), "window=5")
    assert len(data) == 56
    assert "goes back by an hour in autumn" in caplog.text


def test_other_steps_back_are_none() -> None:
    from edge_client.data.tables.values import without_repeated_hours

    for times in (["2026-10-28 02:50", "2026-10-28 02:05"], ["2026-10-25 02:50", "2026-10-25 01:05"]):
        assert without_repeated_hours(seconds(times), np.ones(1, bool))[1] == 0


GAPS = [*range(0, 20 * 60, 60), *range(20 * 60 + 6 * 3600, 30 * 60 + 6 * 3600, 60)]


@pytest.mark.parametrize("kind", KINDS)
def test_no_window_reaches_over_a_gap(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        windows = series(kind, tmp_path, [*GAPS], "window=5").images[:, 0]
    # 16 in the first 20 rows, 6 in the last 10.
    assert len(windows) == 22
    assert not any({19, 20} <= {*window} for window in windows.tolist())
    assert "no window reaches over gaps in 't' (1, the shortest of 21660 s)" in caplog.text


def test_nor_does_what_a_window_forecasts(tmp_path: Path) -> None:
    data = series("csv", tmp_path, [*GAPS], "label=x&window=5&horizon=2")
    assert len(data) == 14 + 4
    assert [18, 19] in data.labels.tolist()
    assert [19, 20] not in data.labels.tolist()


def test_a_gap_is_three_usual_steps_of_its_own_series_or_what_is_stated(tmp_path: Path) -> None:
    rooms = ("fast",) * 4 + ("slow",) * 4
    times = [0, 1, 2, 6, 0, 60, 120, 300]
    assert len(series("csv", tmp_path, [*times], "window=2&group=room", rooms)) == 2 + 3
    assert len(series("csv", tmp_path, [*times], "window=2&group=room&gap=70s", rooms)) == 3 + 2
    assert len(series("csv", tmp_path, [*times], "window=2&group=room&gap=5min", rooms)) == 6


def test_series_that_are_shorter_than_a_window_are_named(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match="need a series of 21 rows, and the file has 30 in series of at most 20"
    ):
        series("csv", tmp_path, [*GAPS], "window=21")


def test_rows_of_one_second_are_no_gaps(tmp_path: Path) -> None:
    times = ["10:00:00", "10:00:00", "10:00:01", "10:00:01", "10:00:02", "10:00:05", "10:00:06"]
    assert len(series("csv", tmp_path, [*times], "window=2")) == 6


def test_days_and_hours_may_be_two_columns(tmp_path: Path) -> None:
    rows = [("30.11.2026", "23:50", 1), ("01.12.2026", "0:00", 2), ("01.12.2026", "0:10", 3)]
    data = read_table("csv", tmp_path, ("day", "hour", "x"), rows, "time=day,hour&window=2")
    assert column_names(data) == ("x",)
    assert len(data) == 2


def test_a_row_whose_time_is_none_is_broken(tmp_path: Path) -> None:
    times = [f"2026-11-01 10:{minute:02}" for minute in range(20)] + ["2026-11-", "2026-11-01 10:20"]
    data = series("csv", tmp_path, [*times])
    assert data.skipped is not None
    assert "column 't' is not a time" in data.skipped.first
    assert data.images[:, 0].tolist() == [*range(20), 21]


@pytest.mark.parametrize(
    ("text", "expected"), [("30", 30), ("1.5s", 1.5), ("5min", 300), ("2h", 7200), ("1d", 86_400)]
)
def test_a_stated_gap_has_a_unit(text: str, expected: float) -> None:
    assert parse_gap(text, source="csv:t") == expected


@pytest.mark.parametrize("options", ["time=t&gap=soon", "time=t&gap=0", "gap=5min", "time-format=%H"])
def test_a_gap_that_is_none_is_refused(options: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"must be a time such as 30s|needs time=COLUMN"):
        read_table("csv", tmp_path, ("t", "x"), [(1, 2)], options)
    assert column_names(load_source(f"csv:{tmp_path / 'table.csv'}?time=t&gap=3")) == ("x",)
