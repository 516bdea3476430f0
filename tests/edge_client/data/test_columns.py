"""Columns of tables are matched by name, whatever their order: on a device, by a model, in a comparison."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.presence import Presence, card_of
from edge_client.agent.rollout.comparison_process import read_examples, write_examples
from edge_client.agent.settings import AgentSettings
from edge_client.data.columns import completed_by, features_of, in_columns
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import BrokerAddress
from schemas.errors import ConfigError, PeerError, Reason
from schemas.messages import Birth, encode_message
from schemas.values import CapabilityProfile, Feature, ModelSpec, Preprocessing
from tests.edge_client.agent.session.by_hand import DEVICE, FEDERATION, task

ROWS = [(16.5, 400.0, "free"), (23.0, 900.0, "busy"), (17.5, 500.0, "free"), (22.0, 800.0, "busy")]
A, B = ("temperature", "co2"), ("co2", "temperature")


def ordered(names: tuple[str, ...]) -> list[list[object]]:
    return [[row[A.index(name)] for name in names] + [row[2]] for row in ROWS]


def write_csv(path: Path, names: tuple[str, ...]) -> str:
    lines = [(*names, "state"), *ordered(names)]
    path.write_text("\n".join(",".join(map(str, line)) for line in lines) + "\n")
    return f"csv:{path}"


def write_sqlite(path: Path, names: tuple[str, ...]) -> str:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"CREATE TABLE t ({', '.join((*names, 'state'))})")
        database.executemany("INSERT INTO t VALUES (?, ?, ?)", ordered(names))
    return f"sqlite:{path}"


def write_parquet(path: Path, names: tuple[str, ...]) -> str:
    arrow = pytest.importorskip("pyarrow")
    import pyarrow.parquet

    columns = zip(*ordered(names), strict=True)
    pyarrow.parquet.write_table(arrow.table(dict(zip((*names, "state"), columns, strict=True))), path)
    return f"parquet:{path}"


WRITERS = {"csv": write_csv, "sqlite": write_sqlite, "parquet": write_parquet}


def rows(columns: tuple[Feature, ...], window: int = 0) -> LabelledData:
    """Two examples, whose feature n has the values n and 10 + n (and so on in a window)."""
    values = np.arange(len(columns)) + 10.0 * np.arange(2)[:, None]
    images = values if not window else values[..., None] + 100.0 * np.arange(window)
    figures = tuple(float(n) for n in range(len(columns)))
    about = Preprocessing(scale=1.0, mean=figures, std=tuple(1 + n for n in figures), columns=columns)
    return make_labelled_data(
        images.astype(np.float32), np.array([0, 1]), class_names=("a", "b"), preprocessing=about
    )


def of_columns(*columns: Feature, shape: tuple[int, ...] | None = None) -> dict[str, object]:
    """The fields of a task with these inputs."""
    model = ModelSpec(name="mlp", input_shape=shape or (len(columns),), num_classes=2)
    return {"model": model, "preprocessing": Preprocessing(class_names=("a", "b"), columns=columns)}


# --- names, units, kinds ---
@pytest.mark.parametrize(
    ("headers", "features"),
    [
        (["temperature", "co2"], [("temperature", ""), ("co2", "")]),
        (["temperature [°C]", "co2(ppm)"], [("temperature", "°C"), ("co2", "ppm")]),
        (["wind speed (m/s)"], [("wind speed", "m/s")]),
        # Endings that tell columns apart are no units.
        (["x [left]", "x [right]", "y [m]"], [("x [left]", ""), ("x [right]", ""), ("y", "m")]),
        (["x", "x (2)"], [("x", ""), ("x (2)", "")]),
        (["[V]"], [("[V]", "")]),
        ([""], []),
        (["n" * 201], []),
        ([f"wave {n}" for n in range(1001)], []),
    ],
)
def test_units_are_read_from_the_ends_of_headers(headers: list[str], features: list[tuple[str, str]]) -> None:
    assert [(feature.name, feature.unit) for feature in features_of(headers)] == features


def test_a_table_may_know_units_that_its_header_does_not_state() -> None:
    (temperature, co2) = features_of(["temperature", "co2 [ppm]"], {"temperature": "°C"})
    assert (temperature.in_words(), co2.in_words()) == ("temperature [°C]", "co2 [ppm]")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["0", "1", "1"], ""),
        (["0", "2", "1"], "number"),
        (["0.5", "0", "1"], "number"),
        (["0", "0", "0"], ""),
    ],
)
def test_zeros_and_ones_may_be_numbers_or_truth_values(tmp_path: Path, values: list[str], kind: str) -> None:
    (tmp_path / "a.csv").write_text("\n".join(["door", *values]) + "\n")
    assert load_source(f"csv:{tmp_path / 'a.csv'}").columns == (Feature(name="door", kind=kind),)


def test_what_a_list_does_not_say_comes_from_most_of_the_others() -> None:
    ours = (Feature(name="t"), Feature(name="door", unit="V"))
    others = [[Feature(name="t", unit=unit, kind="number"), Feature(name="door")] for unit in ("F", "C", "C")]
    assert completed_by(ours, others) == (
        Feature(name="t", unit="C", kind="number"),
        Feature(name="door", unit="V"),
    )


# --- the same examples in another order ---
@pytest.mark.parametrize("window", [0, 3])
def test_features_and_their_figures_are_put_into_the_order_of_the_model(window: int) -> None:
    data = rows(features_of(["a", "b", "c"]), window)
    mapped = in_columns(data, features_of(["c", "a", "b"]))
    np.testing.assert_array_equal(mapped.images, data.images[:, [2, 0, 1]])
    assert mapped.preprocessing.mean == (2.0, 0.0, 1.0)
    assert mapped.preprocessing.std == (3.0, 1.0, 2.0)
    np.testing.assert_array_equal(mapped.inputs(), data.inputs()[:, [2, 0, 1]])


@pytest.mark.parametrize(("shape", "window"), [((3,), 0), ((1, 3), 0), ((3, 4), 4), ((1, 3, 4), 4)])
def test_a_device_takes_a_task_in_the_order_of_its_model(shape: tuple[int, ...], window: int) -> None:
    data = rows(features_of(["a", "b", "c"]), window)
    given = task(**of_columns(*features_of(["c", "b", "a"]), shape=shape))
    mapped = LocalData(data, data).as_the_server_says(given)
    for part in (mapped.train, mapped.held_out):
        np.testing.assert_array_equal(part.images.reshape(data.images.shape), data.images[:, ::-1])
        assert part.preprocessing == given.preprocessing


@pytest.mark.parametrize("kind", WRITERS)
def test_every_table_in_another_order_is_the_same_data(tmp_path: Path, kind: str) -> None:
    first, second = (
        load_source(f"{WRITERS[kind](tmp_path / ''.join(names), names)}?label=state") for names in (A, B)
    )
    mapped = in_columns(second, first.columns)
    np.testing.assert_array_equal(mapped.images, first.images)
    assert mapped.preprocessing == first.preprocessing


def test_a_label_that_is_forecast_is_an_input_too(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv", A)
    data = load_source(f"{source}?label=co2&ignore=state&window=2&horizon=1")
    assert [feature.name for feature in data.columns] == ["temperature", "co2"]
    assert data.class_names == ("co2+1",)


def test_data_without_names_is_taken_as_it_is() -> None:
    data = rows(())
    empty = replace(data, images=np.zeros((2, 2), np.float32))
    assert in_columns(empty, features_of(["a", "b"])) is empty
    named = rows(features_of(["a", "b"]))
    assert in_columns(named, ()) is named


# --- other columns ---
@pytest.mark.parametrize(
    ("own", "wanted", "why"),
    [
        (["a", "x"], ["a", "b"], "unknown column 'x' and no column 'b'.*'a', 'b' .2..*'a', 'x' .2."),
        (["a", "b", "x"], ["a", "b"], "unknown column 'x': the model takes 'a', 'b' .2..*'a', 'b', 'x' .3."),
        (["b"], ["a", "b"], "no column 'a': the model takes 'a', 'b' .2., this data has 'b' .1."),
        (["a [°C]"], ["a [°F]"], "the column 'a' is in °C here, and the model takes °F: convert it"),
    ],
)
def test_other_columns_are_refused_with_both_lists(own: list[str], wanted: list[str], why: str) -> None:
    data = rows(features_of(own))
    with pytest.raises(ConfigError, match=why):
        in_columns(data, features_of(wanted))
    with pytest.raises(PeerError, match=why) as declined:
        LocalData(data, data).check(task(**of_columns(*features_of(wanted))))
    assert declined.value.reason is Reason.INCOMPATIBLE


def test_numbers_are_no_truth_values() -> None:
    data = rows((Feature(name="door", kind="number"),))
    with pytest.raises(ConfigError, match="'door' has numbers here, and the model takes truth values"):
        in_columns(data, [Feature(name="door", kind="truth")])


@pytest.mark.parametrize(("own", "wanted"), [("°C", ""), ("", "°C"), ("℃", "°C"), ("m / s", "m/s")])
def test_units_that_are_unknown_or_spelled_otherwise_fit(own: str, wanted: str) -> None:
    data = rows((Feature(name="a", unit=own),))
    assert in_columns(data, [Feature(name="a", unit=wanted)]).columns[0].unit == wanted


# --- what a device says of itself ---
def test_a_birth_states_the_columns_and_of_too_many_only_the_first() -> None:
    few, many = features_of(A), features_of(f"a column of some length, number {n}" for n in range(60))
    card = card_of(LocalData(rows(few), rows(few)), source="csv:a.csv")
    assert (card.columns, card.states_columns) == (few, True)
    card = card_of(LocalData(rows(many), rows(many)), source="csv:a.csv")
    assert (card.columns, card.states_columns) == (many[:1], False)


def test_a_birth_that_would_be_too_large_has_only_the_first_column(tmp_path: Path) -> None:
    software = {f"library {number}": "x" * 400 for number in range(5)}
    settings = AgentSettings(
        *(FEDERATION, DEVICE, BrokerAddress("nowhere", 1), tmp_path, "csv:a.csv"),
        CapabilityProfile(software=software),
    )
    columns = features_of(f"a column of some length, number {n}" for n in range(40))
    birth = Presence(settings, LocalData(rows(columns), rows(columns))).begin_session(1)
    assert (birth.data.columns, birth.data.class_names) == (columns[:1], ("a", "b"))
    assert len(encode_message(birth)) <= Birth.max_bytes


# --- models and other processes ---
def test_examples_for_a_comparison_keep_their_columns(tmp_path: Path) -> None:
    data = rows(features_of(A))
    write_examples(tmp_path / "examples.npz", LocalData(data, data), 10)
    examples, _ = read_examples(tmp_path / "examples.npz")
    assert examples.columns == data.columns
    np.testing.assert_array_equal(examples.images, data.images)
