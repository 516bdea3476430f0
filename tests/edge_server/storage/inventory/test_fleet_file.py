"""Fleet files: what is read, what is refused in one line, and the round trip of an exported inventory."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_server.storage.inventory.fleet_file import FleetRow, csv_text, document, read_fleet_file
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.records import InventoryDevice
from schemas.errors import ConfigError
from schemas.messages import Birth
from schemas.values import CapabilityProfile, DataCard

CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    yield inventory
    inventory.close()


def rows_of(folder: Path, text: str, name: str = "fleet.csv") -> list[FleetRow]:
    path = folder / name
    path.write_text(text)
    return read_fleet_file(path)


def test_labels_are_read_from_columns_of_their_own_and_from_one_column(tmp_path: Path) -> None:
    text = "device,label.site,label.role,note,data\npi-1,barn,camera,by the door,folder:/srv\npi-2,field,,,\n"
    first, second = rows_of(tmp_path, text)
    assert (first.labels, first.note, first.data) == (
        {"site": "barn", "role": "camera"},
        "by the door",
        "folder:/srv",
    )
    assert second.labels_after({"role": "scale", "gpu": "yes"}) == {"site": "field", "gpu": "yes"}
    (listed,) = rows_of(tmp_path, "device,labels\npi-1,site=barn;role=camera\n")
    assert listed.labels_after({"gpu": "yes"}) == {"site": "barn", "role": "camera"}


def test_files_of_spreadsheets_are_read(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_bytes("\ufeffdevice;label.site\r\npi-1;barn\r\n;\r\n".encode())
    assert [(row.device, row.labels) for row in read_fleet_file(path)] == [("pi-1", {"site": "barn"})]


def test_json_is_read(tmp_path: Path) -> None:
    devices = [{"device": "pi-1", "labels": {"site": "barn"}, "note": "door"}, {"device": "pi-2"}]
    first, second = rows_of(tmp_path, json.dumps(devices), "fleet.json")
    assert (first.labels, first.note, second.note) == ({"site": "barn"}, "door", None)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device\npi-1\npi-2\npi-1\n", "row 4: 'pi-1' is in row 2 already"),
        ("device,federation\npi-1,home\npi-2,\npi-1,\n", "row 4: 'pi-1' is in row 2 already"),
        ("device,federation\npi-1,\npi-1,home\n", "row 3: 'pi-1' is in row 2 already"),
        ("device\nbad/name\n", "row 2: 'bad/name' is not a name"),
        ("device,note\n,door\n", "row 2: '(empty)' is not a name"),
        ("device,lable.site\npi-1,barn\n", "row 1: unknown column 'lable.site'"),
        ("device,label.Site\npi-1,barn\n", "row 1: column 'label.Site'"),
        ("device,device\npi-1,pi-1\n", "row 1: the column 'device' is named twice"),
        ("name\npi-1\n", "row 1: there is no column 'device'"),
        ("device,label.site\npi-1,in the barn\n", "row 2: label value 'in the barn'"),
        ("device,labels\npi-1,site\n", "row 2: 'site': a label is KEY=VALUE"),
        ("device,note\npi-1,a,b\n", "row 2: 3 cells"),
        ('device,note\npi-1,"a\nb"\n', "row 2: the note"),
        ("device,enrolled-at\npi-1,yesterday\n", "row 2: enrolled-at: 'yesterday'"),
        ("device\n", "there is no device in it"),
        ("", "row 1: there is no column 'device'"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=r"fleet\.csv") as error:
        rows_of(tmp_path, text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{}", "not a list of devices"),
        ("[", "not valid JSON"),
        ('[{"device": 7}]', "device 1: device: 7 is not text"),
        ('[{"device": "pi-1", "labels": {"site": "a;role=b"}}]', "device 1: label value 'a;role=b'"),
        ('[{"device": "pi-1", "colour": "red"}]', "device 1: unknown column 'colour'"),
    ],
)
def test_wrong_json_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        rows_of(tmp_path, text, "fleet.json")
    assert words in str(error.value)


def test_all_rows_are_taken_or_none(tmp_path: Path, inventory: Inventory) -> None:
    many = ";".join(f"k{number}=v" for number in range(16))
    rows = rows_of(tmp_path, f"device,labels,label.extra\npi-1,site=barn,\npi-2,{many},\n")
    assert [change.device for change in inventory.take_rows(rows, "home")] == ["pi-1", "pi-2"]
    assert not inventory.take_rows(rows, "home")
    worse = rows_of(tmp_path, "device,label.extra\npi-1,yes\npi-2,yes\n")
    with pytest.raises(ConfigError, match="row 3: pi-2 would have more than 16 labels"):
        inventory.take_rows(worse, "home")
    assert inventory.of_name("pi-1").own_labels == {"site": "barn"}


def test_what_a_device_states_is_no_formula(inventory: Inventory) -> None:
    profile = CapabilityProfile(machine='=HYPERLINK("http://x")')
    birth = Birth(federation="home", device="pi-1", session=1, data=CARD, profile=profile)
    inventory.record_birth(birth, 1.0)
    assert "\"'=HYPERLINK" in csv_text(inventory.devices())


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}", fullmatch=True)
LABELS = st.dictionaries(
    st.from_regex(r"[a-z][a-z0-9-]{0,5}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,5}", fullmatch=True),
    max_size=4,
)
NOTES = st.text(max_size=20).filter(str.isprintable).map(str.strip)
TIMES = st.none() | st.floats(0, 4e9).map(lambda at: round(at, 3))
DEVICES = st.dictionaries(
    st.tuples(NAMES, NAMES),
    st.fixed_dictionaries(
        {
            "own_labels": LABELS,
            "note": NOTES,
            "enrolled_at": TIMES,
            "removed_at": TIMES,
            "replaces": NAMES | st.just(""),
        }
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("suffix", ["csv", "json"])
@given(devices=DEVICES)
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_what_is_exported_is_imported_again(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, devices: dict[tuple[str, str], dict[str, object]]
) -> None:
    folder = tmp_path_factory.mktemp("round-trip")
    inventory = Inventory(folder / "inventory.sqlite")
    known = [
        InventoryDevice(federation=federation, device=device, **fields)
        for (federation, device), fields in sorted(devices.items())
    ]
    text = csv_text(known) if suffix == "csv" else json.dumps([document(device) for device in known])
    inventory.take_rows(rows_of(folder, text, f"fleet.{suffix}"), "federation")
    assert inventory.devices(removed=True) == known
    inventory.close()


KEYS = st.sampled_from(
    ("device", "labels", "own_labels", "note", "enrolled_at", "removed_at", "replaces", "x")
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)
CSV_TEXTS = st.text(max_size=40) | st.lists(
    st.lists(
        st.sampled_from(("device", "label.site", "labels", "note", "removed-at", "pi-1", "a=b", '"', ";"))
    )
).map(lambda rows: "\n".join(",".join(row) for row in rows))


@pytest.mark.parametrize("suffix", ["csv", "json"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_file_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"any.{suffix}"
    text = data.draw(CSV_TEXTS if suffix == "csv" else JSON_VALUES.map(json.dumps))
    path.write_bytes(text.encode(errors="replace"))
    problem = ""
    try:
        read_fleet_file(path)
    except ConfigError as error:
        problem = str(error)
    assert "\n" not in problem
