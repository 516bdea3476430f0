"""JSON lines, SenML, InfluxDB, Edge Impulse and Home Assistant: values with their names."""

import gzip
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth
from tests.file_matrix.writers.sensors import (
    CO2,
    COLUMNS,
    INPUTS,
    ROWS,
    SENSORS,
    STATE,
    TEMPERATURE,
    TIMES,
)

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
)
_file(
    "JSON, a column for each key",
    "pandas",
    "jsonl:FOLDER/log.json?label=state",
    lambda: _frame().to_json(),
    intended=dict.fromkeys(("training", "infer"), "lines=True"),
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


# Edge Impulse: a file for each recording, named by its class.

MOTION = np.random.default_rng(9).normal(size=(4, 3, 25))
MOVES = ("idle", "idle", "wave", "wave")


def _edge_impulse(
    kind: str, writer: str, ending: str, dump: Callable[[Any], bytes], *, by_names: bool = True
) -> None:
    @DOCUMENTS.row(kind, writer, "edgeimpulse:FOLDER?label=label&window=25", truth=Truth(MOTION, MOVES))
    def write(folder: Path) -> None:
        files = []
        for place, (label, values) in enumerate(zip(MOVES, MOTION, strict=True)):
            sensors = [{"name": f"acc{axis}", "units": "m/s2"} for axis in "XYZ"]
            payload = {"device_name": "ac:87:a3:0a:2d:1b", "device_type": "NANO33BLE", "interval_ms": 16}
            document = {
                "protected": {"ver": "v1", "alg": "HS256", "iat": 1_772_358_600},
                "signature": "0" * 64,
                "payload": {**payload, "sensors": sensors, "values": values.T.tolist()},
            }
            name = f"{label if by_names else 'sample'}.{place}.{ending}"
            (folder / name).write_bytes(dump(document))
            files.append({"path": name, "label": {"type": "label", "label": label}})
        if not by_names:
            (folder / "info.labels").write_text(json.dumps({"version": 1, "files": files}))


def _cbor(document: Any) -> bytes:
    import cbor2

    return cbor2.dumps(document)


_edge_impulse("Edge Impulse, JSON", "json", "json", lambda document: json.dumps(document).encode())
_edge_impulse("Edge Impulse, CBOR", "cbor2", "cbor", _cbor)
_edge_impulse(
    "Edge Impulse, an export with info.labels",
    "json",
    "json",
    lambda document: json.dumps(document).encode(),
    by_names=False,
)


# Home Assistant's recorder, schema 53: changes of state, each with the number of its entity.

ENTITIES = ("sensor.temperature", "sensor.co2", "binary_sensor.busy")
SCHEMA = """
CREATE TABLE schema_changes (change_id INTEGER NOT NULL PRIMARY KEY, schema_version INTEGER,
    changed DATETIME);
CREATE TABLE recorder_runs (run_id INTEGER NOT NULL PRIMARY KEY, start DATETIME NOT NULL, "end" DATETIME,
    closed_incorrect BOOLEAN NOT NULL, created DATETIME NOT NULL);
CREATE TABLE states_meta (metadata_id INTEGER NOT NULL PRIMARY KEY, entity_id VARCHAR(255));
CREATE TABLE state_attributes (attributes_id INTEGER NOT NULL PRIMARY KEY, hash BIGINT, shared_attrs TEXT);
CREATE TABLE states (state_id INTEGER NOT NULL PRIMARY KEY, entity_id CHAR(0), state VARCHAR(255),
    attributes CHAR(0), event_id SMALLINT, last_changed CHAR(0), last_changed_ts FLOAT,
    last_reported_ts FLOAT, last_updated CHAR(0), last_updated_ts FLOAT, old_state_id INTEGER,
    attributes_id INTEGER, context_id CHAR(0), context_user_id CHAR(0), context_parent_id CHAR(0),
    origin_idx SMALLINT, context_id_bin BLOB, context_user_id_bin BLOB,
    context_parent_id_bin BLOB, metadata_id INTEGER);
CREATE INDEX ix_states_metadata_id_last_updated_ts ON states (metadata_id, last_updated_ts);
INSERT INTO schema_changes VALUES (1, 53, '2026-02-01 00:00:00');
"""


def _recorder(kind: str, *, has_gap: bool) -> None:
    """The states of three entities; with a gap one of them is unavailable for two moments."""
    lacking = (3, 4) if has_gap else ()
    kept = [place for place in range(len(STATE)) if place not in lacking]
    truth = Truth(INPUTS[kept], [("off", "on")[STATE_NUMBERS[place]] for place in kept])
    source = (
        f"homeassistant:FOLDER/home-assistant_v2.db?entities={ENTITIES[0]},{ENTITIES[1]}&label={ENTITIES[2]}"
    )

    @DOCUMENTS.row(kind, "as Home Assistant", source, truth=truth)
    def write(folder: Path) -> None:
        with closing(sqlite3.connect(folder / "home-assistant_v2.db")) as database, database:
            database.executescript(SCHEMA)
            database.executemany(
                "INSERT INTO states_meta VALUES (?, ?)", enumerate((*ENTITIES, "sun.sun"), 1)
            )
            for place, time in enumerate(SECONDS):
                temperature = "unavailable" if place in lacking else str(TEMPERATURE[place])
                values = (temperature, str(CO2[place]), ("off", "on")[STATE_NUMBERS[place]], "above_horizon")
                database.executemany(
                    "INSERT INTO states (state, last_updated_ts, metadata_id) VALUES (?, ?, ?)",
                    [(value, time, number) for number, value in enumerate(values, 1)],
                )


_recorder("recorder database", has_gap=False)
_recorder("recorder database, unavailable for a while", has_gap=True)
