"""SenML in JSON and CBOR: the examples of RFC 8428, resolved by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from edge_client.data.sources import load_source
from edge_client.data.tables.senml import NAMES, SenmlTable
from schemas.errors import ConfigError
from tests.edge_client.data.tables.column_names import column_names

cbor2 = pytest.importorskip("cbor2")

SECTION_5_1_2 = [
    {"bn": "urn:dev:ow:10e2073a0108006:", "bt": 1.276020076001e9, "bu": "A", "bver": 5, "n": "voltage"}
    | {"u": "V", "v": 120.1},
    *(
        {"n": "current", "t": time, "v": value}
        for time, value in ((-5, 1.2), (-4, 1.3), (-3, 1.4), (-2, 1.5))
    ),
    {"n": "current", "t": -1, "v": 1.6},
    {"n": "current", "v": 1.7},
]
ROOM = [
    {"bn": "room/", "bt": 1.7e9, "bu": "Cel", "bv": 20, "n": "t", "v": 1.5},
    {"n": "state", "u": "", "vs": "empty"},
    {"n": "light", "u": "", "vb": True},
    {"n": "t", "t": 60, "v": -2},
    {"n": "state", "t": 60, "vs": "busy"},
    {"n": "t", "t": 150, "v": 3},
    {"n": "light", "t": 150, "vb": False},
]
"""At 0 s 21.5, empty, 1; at 60 s 18, busy, 1; at 150 s 23, busy, 0."""


def save(path: Path, packs: list[list[dict[str, Any]]], form: str) -> str:
    """Packs one after the other, in JSON or in CBOR with the numbers of its labels."""
    if form == "json":
        path.write_text("\n".join(map(json.dumps, packs)))
    else:
        number = {name: label for label, name in enumerate(NAMES, -6)}
        numbered = [[{number[key]: value for key, value in r.items()} for r in pack] for pack in packs]
        path.write_bytes(b"".join(map(cbor2.dumps, numbered)))
    return f"senml:{path}"


FORMS = pytest.mark.parametrize("form", ["json", "cbor"])


@FORMS
def test_base_values_are_added_and_each_name_is_a_column(tmp_path: Path, form: str) -> None:
    data = load_source(f"{save(tmp_path / 'a', [ROOM], form)}?label=room/state")
    assert column_names(data) == ("room/t", "room/light")
    assert data.images.tolist() == [[21.5, 1], [18, 1], [23, 0]]
    assert [data.class_names[label] for label in data.labels] == ["empty", "busy", "busy"]


@FORMS
def test_even_rows_have_the_last_values(tmp_path: Path, form: str) -> None:
    """1.7e9 s is 20 s behind a multiple of 60: rows at 40 s and 100 s."""
    data = load_source(f"{save(tmp_path / 'a', [ROOM], form)}?every=60&ignore=room/state")
    assert data.images.tolist() == [[21.5, 1], [18, 1]]


@FORMS
def test_records_come_in_the_order_of_their_times_and_only_complete_rows_count(
    tmp_path: Path, form: str
) -> None:
    """The voltage is known at the last moment alone."""
    source = save(tmp_path / "a", [SECTION_5_1_2], form)
    name = "urn:dev:ow:10e2073a0108006:"
    assert load_source(f"{source}?columns={name}current").images[:, 0].tolist() == pytest.approx(
        [1.2, 1.3, 1.4, 1.5, 1.6, 1.7]
    )
    assert load_source(source).images.tolist() == [pytest.approx([1.7, 120.1])]
    assert SenmlTable(tmp_path / "a").units == {f"{name}voltage": "V", f"{name}current": "A"}


@FORMS
def test_packs_follow_each_other_and_a_half_written_one_waits(tmp_path: Path, form: str) -> None:
    later = [{"bn": "room/", "bt": 1.7e9 + 300, "n": "t", "u": "Cel", "v": 19}]
    source = save(tmp_path / "a", [ROOM, later], form) + "?columns=room/t"
    assert load_source(source).images[:, 0].tolist() == [21.5, 18, 23, 19]
    whole = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(whole[:-4])
    assert load_source(source).images[:, 0].tolist() == [21.5, 18, 23]
    (tmp_path / "a").write_bytes(whole[:20])
    with pytest.raises(ConfigError, match=r"is not JSON|is cut off"):
        load_source(source)


def test_sums_have_a_column_of_their_own(tmp_path: Path) -> None:
    pack = [{"bn": "meter", "bt": 1.7e9, "bs": 100, "u": "W", "v": 5, "s": 7}, {"t": 1, "s": 9}]
    source = save(tmp_path / "a", [pack], "json")
    assert load_source(source).images.tolist() == [[5, 107], [5, 109]]
    assert SenmlTable(tmp_path / "a").units == {"meter": "W", "meter sum": "W s"}


@pytest.mark.parametrize(
    ("pack", "message"),
    [
        ({"a": 1}, "is not SenML: expected lists of records"),
        ([{"n": "a", "v": "b"}], r"a record is not SenML"),
        ([{"n": "a", "u": "V", "v": 1}, {"n": "a", "u": "mV", "v": 1}], "'a' is in V and in mV: convert one"),
        ([{"n": "a", "t": 1.7e9, "v": 1}, {"n": "b", "v": 1}], "'b' has a time relative to now.*base time"),
        ([{"n": "a", "v": 1, "price_": 2}], "'price_' must be understood"),
        ([{"n": "a", "v": 1, "bver": 11}], "bver: a pack of a later version of SenML"),
        ([{"n": "a", "v": 1, "bver": "10"}], "a record is not SenML"),
    ],
)
def test_other_values_are_refused(tmp_path: Path, pack: Any, message: str) -> None:
    (tmp_path / "a.json").write_text(json.dumps(pack))
    with pytest.raises(ConfigError, match=message):
        load_source(f"senml:{tmp_path / 'a.json'}")
