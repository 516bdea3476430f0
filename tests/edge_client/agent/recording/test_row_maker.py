"""Messages become rows: by the clock or by id, with labels, and without what a sensor does not have."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.recording.readings import Place, Reading
from edge_client.agent.recording.row_maker import RowMaker, Wanted
from edge_client.data.example_store import ExampleStore, StoreLimits
from edge_client.data.sources import load_source
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
