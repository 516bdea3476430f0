"""InfluxDB's annotated CSV: answers in the form of its documentation, compared with pandas."""

import io
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import load_source
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names

NOTES = """\
#group,false,false,true,true,false,false,true,true,true
#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,{kind},string,string,string
#default,_result,,,,,,,,
,result,table,_start,_stop,_time,_value,_field,_measurement,room
"""
ROWS = {
    ("double", "temperature", "attic"): [(0, "20.5"), (60, "21"), (120, "21.5"), (240, "22")],
    ("long", "co2", "attic"): [(60, "410"), (120, "420"), (180, "430")],
    ("string", "state", "attic"): [(0, "empty"), (120, "busy")],
    ("double", "temperature", "hall"): [(0, "17"), (60, "16.5")],
    ("long", "co2", "hall"): [(0, "600"), (60, "610")],
    ("string", "state", "hall"): [(0, "busy")],
}


def answer(newline: str = "\r\n") -> str:
    """An answer as `influx query --raw` prints it: a table for each field of each room."""
    tables = []
    for number, ((kind, field, room), points) in enumerate(ROWS.items()):
        lines = [
            f",,{number},2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,"
            f"2026-11-28T00:0{second // 60}:00.000000001Z,{value},{field},climate,{room}\n"
            for second, value in points
        ]
        tables.append(NOTES.format(kind=kind) + "".join(lines))
    return ("\n".join(tables) + "\n").replace("\n", newline)


PIVOTED = """\
#group,false,false,true,true,false,false,false,true,true
#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,double,string,string,string
#default,_result,,,,,,,,
,result,table,_start,_stop,_time,temperature,state,_measurement,room
,,0,2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,2026-11-28T00:00:00Z,20.5,empty,climate,attic
,,0,2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,2026-11-28T00:01:00Z,,empty,climate,attic
,,0,2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,2026-11-28T00:02:00Z,21.5,busy,climate,attic
,,1,2026-11-28T00:00:00Z,2026-11-29T00:00:00Z,2026-11-28T00:00:00Z,17,busy,climate,hall
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "answer.csv").write_text(answer(), newline="")
    return tmp_path / "answer.csv"


def test_each_field_is_a_column_and_points_of_equal_tags_a_series(path: Path) -> None:
    """Attic: temperature and CO2 at 60, 120, 180 and 240 s; hall: at 0 and 60 s."""
    data = load_source(f"influxdb:{path}?columns=temperature,co2&label=room")
    assert data.images.tolist() == [[21, 410], [21.5, 420], [21.5, 430], [22, 430], [17, 600], [16.5, 610]]
    assert [data.class_names[label] for label in data.labels] == ["attic"] * 4 + ["hall"] * 2
    windows = load_source(f"influxdb:{path}?columns=temperature,co2&window=2&stride=2")
    assert windows.images[:, 0].tolist() == [[21, 21.5], [21.5, 22], [17, 16.5]]


def test_rows_are_those_of_pandas(path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    tables = [pandas.read_csv(io.StringIO(text), comment="#") for text in answer("\n").strip().split("\n\n")]
    points = pandas.concat(tables)
    points = points[(points.room == "attic") & (points._field != "state")]
    wide = points.pivot(index="_time", columns="_field", values="_value").ffill().dropna()
    data = load_source(f"influxdb:{path}?columns=temperature,co2")
    np.testing.assert_array_equal(
        data.images[: len(wide)], wide[["temperature", "co2"]].astype("float32").to_numpy()
    )


def test_fields_of_texts_are_labels(path: Path) -> None:
    data = load_source(f"influxdb:{path}?columns=temperature&label=state")
    assert [data.class_names[label] for label in data.labels] == ["empty"] * 2 + ["busy"] * 5


def test_even_rows_have_the_last_values(path: Path) -> None:
    """At 120 s and 240 s in the attic, at 0 s in the hall; times are those of the file to the microsecond."""
    data = load_source(f"influxdb:{path}?columns=temperature,co2&every=120")
    assert data.images.tolist() == [[21.5, 420], [22, 430], [17, 600]]


def test_columns_may_name_the_values_and_a_group_the_series(tmp_path: Path) -> None:
    """Home Assistant's export: the unit is the measurement, the entity a tag, the field always `value`."""
    head = "#group,false,false,false,false,true,true,true\n"
    head += "#datatype,string,long,dateTime:RFC3339,double,string,string,string\n"
    head += "#default,_result,,,,,,\n,result,table,_time,_value,_field,_measurement,entity_id\n"
    lines = [
        ",,0,2026-11-28T00:00:00Z,20,value,°C,attic_t",
        ",,0,2026-11-28T00:01:00Z,21,value,°C,attic_t",
        ",,1,2026-11-28T00:00:30Z,400,value,ppm,attic_co2",
    ]
    (tmp_path / "a.csv").write_text(head + "\n".join(lines) + "\n")
    data = load_source(f"influxdb:{tmp_path / 'a.csv'}?name=entity_id")
    assert (column_names(data), data.images.tolist()) == (("attic_t", "attic_co2"), [[20, 400], [21, 400]])


def test_a_pivoted_answer_has_its_values_missing_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(PIVOTED)
    data = load_source(f"influxdb:{tmp_path / 'a.csv'}?label=state")
    assert (column_names(data), data.images.tolist()) == (("temperature",), [[20.5], [21.5], [17]])
    filled = load_source(f"influxdb:{tmp_path / 'a.csv'}?label=state&missing=previous")
    assert filled.images.tolist() == [[20.5], [20.5], [21.5], [17]]


def test_a_half_written_last_line_waits(path: Path) -> None:
    text = PIVOTED.splitlines(keepends=True)
    path.write_text("".join(text[:-1]) + text[-1][:-4])
    assert len(load_source(f"influxdb:{path}?label=state")) == 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "#datatype,string,string\n#group,true,true\n#default,,\n,error,reference\n,bad query,897\n",
            "",
            "holds the error of a query",
        ),
        (PIVOTED.replace("2026-11-28T00:01:00Z", "noon"), "", "a value of the column '_time' is not a time"),
        (
            "room,of=attic temp=20.5 17\nroom,of=attic temp=21 18\n",
            "",
            "without a column '_time': influxdb: reads",
        ),
        (PIVOTED, "?name=entity", "without a column 'entity'"),
        (PIVOTED + ",,1\n", "", "line 9: 3 values for 10 columns"),
    ],
)
def test_other_answers_are_refused(tmp_path: Path, text: str, options: str, message: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ConfigError, match=message):
        load_source(f"influxdb:{tmp_path / 'a.csv'}{options}")
