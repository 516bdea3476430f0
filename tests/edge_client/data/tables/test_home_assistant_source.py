"""The recorder database of Home Assistant: the tables that its schema 53 makes, and rows that it writes."""

import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edge_client.data.sources import files_of, load_source
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names

SCHEMA = """
CREATE TABLE state_attributes (attributes_id INTEGER NOT NULL PRIMARY KEY, hash BIGINT,
    shared_attrs TEXT);
CREATE TABLE states_meta (metadata_id INTEGER NOT NULL PRIMARY KEY, entity_id VARCHAR(255));
CREATE TABLE recorder_runs (run_id INTEGER NOT NULL PRIMARY KEY, start DATETIME NOT NULL, "end" DATETIME,
    closed_incorrect BOOLEAN NOT NULL, created DATETIME NOT NULL);
CREATE TABLE states (state_id INTEGER NOT NULL PRIMARY KEY, entity_id CHAR(0), state VARCHAR(255),
    attributes CHAR(0), event_id SMALLINT, last_changed CHAR(0), last_changed_ts FLOAT,
    last_reported_ts FLOAT, last_updated CHAR(0), last_updated_ts FLOAT, old_state_id INTEGER,
    attributes_id INTEGER, context_id CHAR(0), context_user_id CHAR(0), context_parent_id CHAR(0),
    origin_idx SMALLINT, context_id_bin BLOB, context_user_id_bin BLOB, context_parent_id_bin BLOB,
    metadata_id INTEGER);
CREATE INDEX ix_states_last_updated_ts ON states (last_updated_ts);
CREATE INDEX ix_states_metadata_id_last_updated_ts ON states (metadata_id, last_updated_ts);
"""
START = 1_795_824_000.0  # 2026-11-28 00:00 UTC
TEMPERATURE, CO2, WINDOW = "sensor.attic_temperature", "sensor.attic_co2", "binary_sensor.attic_window"
UNITS = {TEMPERATURE: "°C", CO2: "ppm"}
CHANGES = [
    (0, TEMPERATURE, "20.5"),
    (5, CO2, "400"),
    (10, WINDOW, "off"),
    (30, TEMPERATURE, "21.0"),
    (70, CO2, "unavailable"),
    (90, WINDOW, "on"),
    (130, CO2, "450"),
    (130, TEMPERATURE, "19.0"),
    (200, TEMPERATURE, "unknown"),
    (260, TEMPERATURE, "18.5"),
]
ALL = f"entities={TEMPERATURE},{CO2}&label={WINDOW}"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """A database in write-ahead mode, as Home Assistant keeps it, that stays open for writing."""
    with closing(sqlite3.connect(tmp_path / "home-assistant_v2.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        for number, name in enumerate((TEMPERATURE, CO2, WINDOW, "sun.sun"), 1):
            connection.execute("INSERT INTO states_meta VALUES (?, ?)", (number, name))
            attributes = json.dumps({"friendly_name": name, "unit_of_measurement": UNITS.get(name)})
            connection.execute("INSERT INTO state_attributes VALUES (?, 0, ?)", (number, attributes))
        record(connection, CHANGES)
        yield connection


def record(connection: sqlite3.Connection, changes: list[tuple[float, str, str]]) -> None:
    for after, name, state in changes:
        connection.execute(
            "INSERT INTO states (state, last_updated_ts, attributes_id, metadata_id) "
            "SELECT ?, ?, metadata_id, metadata_id FROM states_meta WHERE entity_id = ?",
            (state, START + after, name),
        )
    connection.commit()


def source_of(database: sqlite3.Connection, options: str = ALL) -> str:
    (_, _, path) = database.execute("PRAGMA database_list").fetchone()
    return f"homeassistant:{path}?{options}"


def test_a_row_stands_for_each_change_with_the_last_values_of_all_entities(
    database: sqlite3.Connection,
) -> None:
    """Before 10 s an entity has no state yet; from 70 s to 130 s and from 200 s to 260 s one has none."""
    data = load_source(source_of(database))
    assert data.images.tolist() == [[20.5, 400], [21, 400], [19, 450], [18.5, 450]]
    assert [data.class_names[label] for label in data.labels] == ["off", "off", "on", "on"]
    assert column_names(data) == (TEMPERATURE, CO2)


def test_even_rows_have_the_state_at_their_time(database: sqlite3.Connection) -> None:
    """At 60 s and 180 s; at 0 s two entities have no state, at 120 s and 240 s one; the last is at 260 s."""
    data = load_source(source_of(database, f"{ALL}&every=60"))
    assert data.images.tolist() == [[21, 400], [19, 450]]
    finer = load_source(source_of(database, f"{ALL}&every=20&window=2"))
    expected = [[[20.5, 21], [400, 400]], [[21, 21], [400, 400]], [[19, 19], [450, 450]]]
    assert all(window in finer.images.tolist() for window in expected)


def test_rows_are_those_of_pandas(database: sqlite3.Connection) -> None:
    pandas = pytest.importorskip("pandas")
    query = (
        "SELECT last_updated_ts, m.entity_id, state FROM states JOIN states_meta m USING (metadata_id) "
        "WHERE m.entity_id LIKE 'sensor%' ORDER BY last_updated_ts"
    )
    wide = pandas.read_sql(query, database).pivot(
        index="last_updated_ts", columns="entity_id", values="state"
    )
    # A state that is unknown is a state: filled forward, and missing only then.
    wide = wide.ffill().replace({"unavailable": None, "unknown": None}).dropna().astype("float32")
    data = load_source(source_of(database, f"entities={CO2},{TEMPERATURE}"))
    np.testing.assert_array_equal(data.images, wide[[CO2, TEMPERATURE]])


def test_switches_are_numbers_as_inputs_and_words_as_labels(database: sqlite3.Connection) -> None:
    data = load_source(source_of(database, f"entities={WINDOW}"))
    assert data.images.tolist() == [[0], [1]]


def test_what_is_recorded_while_the_database_is_read_comes_at_the_next_look(
    database: sqlite3.Connection,
) -> None:
    source = source_of(database)
    before = len(load_source(source))
    record(database, [(300, TEMPERATURE, "17.0")])
    assert len(load_source(source)) == before + 1
    assert [path.name for path in files_of(source)] == ["home-assistant_v2.db", "home-assistant_v2.db-wal"]


@pytest.mark.parametrize("is_crash", [False, True])
def test_no_state_holds_while_nothing_was_recorded(database: sqlite3.Connection, is_crash: bool) -> None:
    """Recording ended at 280 s and began again at 1000 s; a crash has the next start as its end."""
    end = "2026-11-28 00:16:40.000000" if is_crash else "2026-11-28 00:04:40.500000"
    database.execute(
        "INSERT INTO recorder_runs VALUES (1, '2026-11-27', ?, ?, '2026-11-27')", (end, is_crash)
    )
    again = [(1000.5, TEMPERATURE, "15"), (1000.5, CO2, "500"), (1000.5, WINDOW, "off")]
    record(database, again)
    data = load_source(source_of(database, f"entities={TEMPERATURE}&every=20"))
    # At 0, 20; 40 to 120; 140, 160, 180; and 260, 280, unless the last change before a crash tells its time.
    last = [] if is_crash else [18.5] * 2
    assert data.images[:, 0].tolist() == [20.5] * 2 + [21] * 5 + [19] * 3 + last


def test_units_are_the_entities_and_a_change_is_said(
    database: sqlite3.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    from edge_client.data.tables.home_assistant import HomeAssistantTable

    path = Path(source_of(database).removeprefix("homeassistant:").partition("?")[0])
    table = HomeAssistantTable(path, (TEMPERATURE, CO2, WINDOW))
    assert table.units == UNITS
    database.execute('INSERT INTO state_attributes VALUES (9, 0, \'{"unit_of_measurement": "°F"}\')')
    database.execute("UPDATE states SET attributes_id = 9 WHERE state_id = 10")
    database.commit()
    with caplog.at_level(logging.WARNING):
        assert table.units[TEMPERATURE] == "°F"
    assert f"{TEMPERATURE} was recorded in °C and in °F" in caplog.text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", r"state entities=.*sensor.attic_temperature, "),
        ("entities=sensor.attic_temperatur", "no entity 'sensor.attic_temperatur' .did you mean"),
        (f"{ALL}&window=10", "windows need even ones: state every=60"),
        (f"{ALL}&every=0", "every=0 must be a number of seconds above 0"),
        ("entities=sun.sun", "no rows"),
    ],
)
def test_wrong_options_are_refused_with_the_remedy(
    database: sqlite3.Connection, options: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_source(source_of(database, options))


def test_another_database_is_refused(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE rows (a)")
    with pytest.raises(ConfigError, match="is not a recorder database of Home Assistant, or is broken"):
        load_source(f"homeassistant:{tmp_path / 'other.db'}?entities=a.b")
