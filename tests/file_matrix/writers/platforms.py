"""Recordings of Edge Impulse and the recorder database of Home Assistant."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from tests.file_matrix.rows import Rows, Truth
from tests.file_matrix.writers.documents import SECONDS, STATE_NUMBERS
from tests.file_matrix.writers.sensors import CO2, INPUTS, STATE, TEMPERATURE

PLATFORMS = Rows()

# Edge Impulse: a file for each recording, named by its class.

MOTION = np.random.default_rng(9).normal(size=(4, 3, 25))
MOVES = ("idle", "idle", "wave", "wave")


def _edge_impulse(
    kind: str, writer: str, ending: str, dump: Callable[[Any], bytes], *, by_names: bool = True
) -> None:
    @PLATFORMS.row(kind, writer, "edgeimpulse:FOLDER?label=label&window=25", truth=Truth(MOTION, MOVES))
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

    @PLATFORMS.row(kind, "as Home Assistant", source, truth=truth)
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
