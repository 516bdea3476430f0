"""What a message of a sensor is as a number, and which options name a place."""

import pytest

from edge_client.agent.recording.readings import Place, Reading, number_in, parse_place, parse_reading
from edge_client.agent.recording.row_maker import ById, ByTime, FromNow, read_label
from schemas.errors import ConfigError, PeerError


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
