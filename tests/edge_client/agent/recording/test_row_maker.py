"""Sensors' messages as rows: what a reading says, and which rows are recorded."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.recording.row_maker import (
    ById,
    ByTime,
    FromNow,
    Place,
    Reading,
    RowMaker,
    Wanted,
    number_in,
    parse_place,
    parse_reading,
    read_label,
)
from edge_client.data.sources import load_source
from edge_client.data.tables.recorded import ExampleStore, StoreLimits
from schemas.errors import ConfigError, PeerError

READINGS = (Reading("co2", Place("air", ("co2",))), Reading("light", Place("lamp")))
AIR = b'{"co2": 800}'


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ExampleStore]:
    made = ExampleStore(tmp_path / "room.sqlite", ("co2", "light"), StoreLimits(), seed=0)
    yield made
    made.close()


def recorded(store: ExampleStore, options: str = "") -> np.ndarray:
    return load_source(f"recorded:{store.path}{options}").images


def by_clock(store: ExampleStore, label: str | None = None) -> RowMaker:
    return RowMaker(Wanted(READINGS, every_s=10.0, label=label), store)


def test_topics_are_named_once() -> None:
    both = (*READINGS, Reading("humidity", Place("air", ("humidity",))))
    assert Wanted(both, ident=Place("air", ("serial",)), label="state").topics == ("air", "lamp", "state")


def test_a_row_has_the_last_values_when_all_are_known(store: ExampleStore) -> None:
    rows = by_clock(store)
    rows.take("air", AIR, now=0.0)
    assert (rows.tick(10.0), rows.missing) == (False, ["light"])
    rows.take("lamp", b"on", now=11.0)
    assert rows.tick(20.0)
    rows.take("air", b'{"co2": 900}', now=21.0)
    assert rows.tick(30.0)
    assert recorded(store).tolist() == [[800, 1], [900, 1]]
    assert (rows.counts.rows, rows.counts.incomplete) == (2, 1)


def test_an_unavailable_sensor_and_a_lost_connection_end_the_series(store: ExampleStore) -> None:
    rows = by_clock(store)
    rows.take("air", AIR, now=0.0)
    rows.take("lamp", b"0", now=0.0)
    for moment in (10.0, 20.0, 30.0):
        rows.tick(moment)
    rows.take("lamp", b"unavailable", now=31.0)
    assert not rows.tick(40.0)
    rows.take("lamp", b"1", now=41.0)
    rows.tick(50.0)
    rows.tick(60.0)
    # Rows 1 to 3 and 4 to 5 are two series.
    assert recorded(store, "?window=2").shape == (3, 2, 2)
    rows.forget()
    assert (rows.tick(70.0), rows.missing) == (False, ["co2", "light"])


def test_a_machine_that_slept_begins_another_series(store: ExampleStore) -> None:
    rows = by_clock(store)
    rows.take("air", AIR, now=0.0)
    rows.take("lamp", b"0", now=0.0)
    for moment in (10.0, 20.0, 500.0, 510.0):
        rows.tick(moment)
    assert len(recorded(store, "?window=2")) == 2


def test_rows_get_the_present_label_and_later_ones(store: ExampleStore) -> None:
    rows = by_clock(store, label="state")
    rows.take("air", AIR, now=0.0)
    rows.take("lamp", b"0", now=0.0)
    rows.tick(10.0)
    rows.take("state", b"busy", now=11.0)
    rows.tick(20.0)
    rows.take("state", b"", now=21.0)
    rows.tick(30.0)
    rows.tick(40.0)
    rows.take("state", b'{"id": "10000", "label": "idle"}', now=41.0)
    rows.take("state", b'{"from": 30, "to": 35, "label": "idle"}', now=41.0)
    data = load_source(f"recorded:{store.path}?label=label")
    assert [data.class_names[label] for label in data.labels] == ["idle", "busy", "idle"]
    assert rows.counts.labelled == 3


@pytest.mark.parametrize(
    "label", [b'{"id": "7", "label": "idle"}', b'{"from": 0, "to": 1, "label": "idle"}', b"{"]
)
def test_a_label_that_names_no_example_is_refused_and_counted(store: ExampleStore, label: bytes) -> None:
    rows = by_clock(store, label="state")
    with pytest.raises(PeerError, match=r"names no example|is not JSON"):
        rows.take("state", label, now=1.0)
    assert rows.counts.refused == {"state": 1}


def test_one_bad_value_of_a_message_leaves_the_others(store: ExampleStore) -> None:
    both = (Reading("co2", Place("air", ("co2",))), Reading("light", Place("air", ("light",))))
    rows = RowMaker(Wanted(both), store)
    with pytest.raises(PeerError, match="column 'co2': 'high' is not a number"):
        rows.take("air", b'{"co2": "high", "light": 3}', now=0.0)
    assert rows.missing == ["co2"]
    assert rows.counts.refused == {"air": 1}


def test_a_row_by_id_is_recorded_when_its_id_arrives(store: ExampleStore) -> None:
    wanted = Wanted(READINGS, ident=Place("part", ("serial",)), label="test")
    rows = RowMaker(wanted, store)
    rows.take("air", AIR, now=0.0)
    with pytest.raises(PeerError, match="row 'a1' is incomplete: no value of light"):
        rows.take("part", b'{"serial": "a1"}', now=1.0)
    rows.take("lamp", b"3", now=2.0)
    rows.take("part", b'{"serial": "a2"}', now=3.0)
    rows.take("air", b'{"co2": 900}', now=4.0)
    rows.take("part", b'{"serial": "a3"}', now=5.0)
    rows.take("test", b'{"id": "a2", "label": "good"}', now=6.0)
    with pytest.raises(PeerError, match="the id is empty"):
        rows.take("part", b'{"serial": ""}', now=7.0)
    assert recorded(store).tolist() == [[800, 3], [900, 3]]
    assert recorded(store, "?label=label").tolist() == [[800, 3]]


def test_two_recorders_do_not_share_a_store(store: ExampleStore) -> None:
    with pytest.raises(ConfigError, match="is being written by another recorder"):
        ExampleStore(store.path, ("co2", "light"), StoreLimits())


@pytest.mark.parametrize(
    ("payload", "number"),
    [(b"21.5", 21.5), (b" -3 ", -3.0), (b"1e3", 1000.0), (b"on", 1.0), (b"OFF", 0.0), (b"open", 1.0)],
)
def test_a_plain_message_is_a_number_or_a_state(payload: bytes, number: float) -> None:
    assert number_in(payload, ()) == number


@pytest.mark.parametrize("payload", [b"", b"unavailable", b"Unknown", b"nan", b"None"])
def test_an_unavailable_sensor_has_no_value(payload: bytes) -> None:
    assert number_in(payload, ()) is None


@pytest.mark.parametrize(
    ("payload", "number"),
    [
        (b'{"air": {"co2": 800, "open": true}}', 800.0),
        (b'{"air": {"co2": "812.5"}}', 812.5),
        (b'{"air": {"co2": null}}', None),
    ],
)
def test_keys_lead_into_json(payload: bytes, number: float | None) -> None:
    assert number_in(payload, ("air", "co2")) == number


@pytest.mark.parametrize(
    ("payload", "keys", "message"),
    [
        (b"warm", (), "'warm' is not a number"),
        (b"inf", (), "is not a finite number"),
        (b"\xff", (), "is not text"),
        (b"21", ("co2",), "'co2' is looked for in '21'"),
        (b"{", ("co2",), "is not JSON"),
        (b'{"CO2": 1}', ("co2",), "no key 'co2' .known: CO2"),
        (b'{"co2": [1]}', ("co2",), r"'\[1\]' is not a number"),
        (b"[" * 100_000, ("co2",), "is not JSON"),
    ],
)
def test_other_messages_are_refused(payload: bytes, keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(PeerError, match=message):
        number_in(payload, keys)


def test_a_column_names_its_topic_and_keys() -> None:
    assert parse_reading("co2=home/barn/air#sensor.co2") == Reading(
        "co2", Place("home/barn/air", ("sensor", "co2"))
    )
    assert parse_reading("t = home/t") == Reading("t", Place("home/t"))


@pytest.mark.parametrize(
    "text", ["co2", "=home/co2", "co2=", "co2=home/+/co2", "co2=home/#", "co2=home/air#"]
)
def test_a_column_without_a_single_topic_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--column '(co2|=home)"):
        parse_reading(text)


def test_an_id_without_a_topic_is_refused() -> None:
    with pytest.raises(ConfigError, match="--id: '#serial' is not a single topic"):
        parse_place("#serial", option="--id")


@pytest.mark.parametrize(
    ("payload", "label"),
    [
        (b"busy", FromNow("busy")),
        (b'"busy"', FromNow("busy")),
        (b'{"label": 3}', FromNow("3")),
        (b"", FromNow(None)),
        (b"unknown", FromNow(None)),
        (b'{"id": 17, "label": "bad"}', ById("17", "bad")),
        (b'{"from": 10, "to": 20.5, "label": "bad"}', ByTime(10.0, 20.5, "bad")),
        (b'{"from": "1970-01-01T00:00:10Z", "to": 20, "label": "bad"}', ByTime(10.0, 20.0, "bad")),
    ],
)
def test_labels_come_for_now_by_id_or_by_time(payload: bytes, label: object) -> None:
    assert read_label(payload) == label


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b"\xff", "is not text"),
        (b"{busy}", "is not JSON"),
        (b'{"id": 17}', "is not a label: expected"),
        (b'{"id": [17], "label": "x"}', "is not a label: expected"),
        (b'{"from": "nine", "to": 20, "label": "x"}', "'nine' is not a time"),
        (b'{"from": true, "to": 20, "label": "x"}', "'True' is not a time"),
    ],
)
def test_other_labels_are_refused(payload: bytes, message: str) -> None:
    with pytest.raises(PeerError, match=message):
        read_label(payload)
