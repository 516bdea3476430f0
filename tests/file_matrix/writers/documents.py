"""JSON lines, SenML and InfluxDB: values with their names."""

import gzip
import json
from collections.abc import Callable
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth, refused
from tests.file_matrix.writers.sensors import CO2, COLUMNS, INPUTS, ROWS, SENSORS, STATE, TEMPERATURE, TIMES

DOCUMENTS = Rows()
LINES = "jsonl:FOLDER/log.jsonl?label=state"
SECONDS = [time.replace(tzinfo=UTC).timestamp() for time in TIMES]
Text = Callable[[], str | bytes]


def _file(kind: str, writer: str, source: str, text: Text, truth: Truth = SENSORS, **more: Any) -> None:
    """A row of one file, called as the source says, with this content."""

    @DOCUMENTS.row(kind, writer, source, truth=truth, **more)
    def write(folder: Path) -> None:
        made = text()
        name = source.partition("FOLDER/")[2].partition("?")[0]
        (folder / name).write_bytes(made if isinstance(made, bytes) else made.encode())


def _frame() -> Any:
    import pandas

    return pandas.DataFrame(COLUMNS)


def _lines(rows: Any) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


OBJECTS = [dict(zip(COLUMNS, row, strict=True)) for row in ROWS]
_file("JSON lines", "pandas", LINES, lambda: _frame().to_json(orient="records", lines=True))
_file(
    "JSON lines, gzip",
    "pandas",
    "jsonl:FOLDER/log.jsonl.gz?label=state",
    lambda: gzip.compress(_frame().to_json(orient="records", lines=True).encode()),
    intended=refused("unpack it with gunzip"),
)
_file(
    "JSON lines, times in milliseconds",
    "pandas",
    f"{LINES}&time=time",
    lambda: _frame().assign(time=TIMES).to_json(orient="records", lines=True, date_unit="ms"),
)
_file("JSON lines", "json", LINES, lambda: _lines(OBJECTS))
_file("JSON lines, no end of the last line", "json", LINES, lambda: _lines(OBJECTS).rstrip("\n"))
_file(
    "JSON lines, truth values and null",
    "json",
    f"{LINES}&missing=0",
    lambda: _lines({**row, "door": None if place else True} for place, row in enumerate(OBJECTS)),
    Truth(np.column_stack([INPUTS, [1] + [0] * 11]), STATE),
)


@DOCUMENTS.row("JSON lines", "polars", LINES, truth=SENSORS)
def _(folder: Path) -> None:
    import polars

    polars.DataFrame(COLUMNS).write_ndjson(folder / "log.jsonl")


@DOCUMENTS.row("JSON lines", "duckdb", LINES, truth=SENSORS)
def _(folder: Path) -> None:
    import duckdb

    log = duckdb.connect().register("log", _frame())
    log.execute(f"COPY log TO '{folder / 'log.jsonl'}' (FORMAT json)")


_file(
    "JSON lines, objects in objects",
    "as The Things Network",
    f"{LINES.replace('label=state', 'label=uplink.decoded.state')}&time=received_at",
    lambda: _lines(
        {"received_at": time.isoformat() + "Z", "uplink": {"decoded": row}}
        for time, row in zip(TIMES, OBJECTS, strict=True)
    ),
)
_file(
    "JSON lines of a topic",
    "as zigbee2mqtt",
    f"{LINES}&ignore=linkquality",
    lambda: _lines({**row, "linkquality": 90 - place} for place, row in enumerate(OBJECTS)),
)
_file(
    "JSON, a list of objects",
    "pandas",
    "jsonl:FOLDER/log.json?label=state",
    lambda: _frame().to_json(orient="records"),
    intended=refused("lines=True"),
)
_file(
    "JSON, a column for each key",
    "pandas",
    "jsonl:FOLDER/log.json?label=state",
    lambda: _frame().to_json(),
    intended=refused("lines=True"),
)
_file(
    "JSON lines, a window per row",
    "json",
    LINES,
    lambda: _lines(
        {"signal": list(row), "state": state} for row, state in zip(INPUTS.tolist(), STATE, strict=True)
    ),
    Truth(INPUTS[:, None], STATE),
)


# SenML has a record for each value, InfluxDB a line.

READINGS = [("temperature", "Cel", TEMPERATURE), ("co2", "ppm", CO2)]
STATE_NUMBERS = [int(state == "busy") for state in STATE]
NUMBERED = Truth(INPUTS, ["1" if state == "busy" else "0" for state in STATE])


def _senml() -> list[dict[str, Any]]:
    """A record for each value, relative to a base name and time (RFC 8428, section 5.1.3)."""
    records = [
        {"n": name, "u": unit, "v": values[place], "t": SECONDS[place] - SECONDS[0]}
        for place in range(len(STATE))
        for name, unit, values in (*READINGS, ("busy", "/", STATE_NUMBERS))
    ]
    return [{"bn": "urn:dev:ow:10e2:", "bt": SECONDS[0], **records[0]}, *records[1:]]


def _senml_cbor() -> bytes:
    import cbor2

    keys = {"bn": -2, "bt": -3, "n": 0, "u": 1, "v": 2, "t": 6}
    return cbor2.dumps([{keys[key]: value for key, value in record.items()} for record in _senml()])


SENML = "?label=urn:dev:ow:10e2:busy"
_file("SenML, JSON", "json", f"senml:FOLDER/log.senml{SENML}", lambda: json.dumps(_senml()), NUMBERED)
_file("SenML, CBOR", "cbor2", f"senml:FOLDER/log.senmlc{SENML}", _senml_cbor, NUMBERED)


def _influx(*, is_pivoted: bool) -> str:
    """Annotated CSV of a Flux query: a table for each field, or one after `pivot`."""
    lines = []
    times = [time.isoformat() + "Z" for time in TIMES]
    if is_pivoted:
        lines += [
            "#group,false,false,false,true,false,false,false",
            "#datatype,string,long,dateTime:RFC3339,string,double,double,string",
            "#default,_result,,,,,,",
            ",result,table,_time,room,temperature,co2,state",
        ]
        lines += [f",,0,{time},kitchen,{t},{c},{s}" for time, (t, c, s) in zip(times, ROWS, strict=True)]
        return "\r\n".join([*lines, "", ""])
    for table, (field, kind) in enumerate(
        (("temperature", "double"), ("co2", "double"), ("state", "string"))
    ):
        lines += [
            "#group,false,false,true,true,false,false,true,true,true",
            f"#datatype,string,long,dateTime:RFC3339,dateTime:RFC3339,dateTime:RFC3339,{kind},string,string,string",
            "#default,_result,,,,,,,,",
            ",result,table,_start,_stop,_time,_value,_field,_measurement,room",
        ]
        lines += [
            f",,{table},2026-03-01T00:00:00Z,2026-03-02T00:00:00Z,{time},{value},{field},air,kitchen"
            for time, value in zip(times, COLUMNS[field], strict=True)
        ]
        lines.append("")
    return "\r\n".join([*lines, ""])


INFLUX = "influxdb:FOLDER/log.csv?label=state"
_file("annotated CSV of a query", "as InfluxDB", INFLUX, lambda: _influx(is_pivoted=False))
_file("annotated CSV after pivot", "as InfluxDB", INFLUX, lambda: _influx(is_pivoted=True))
