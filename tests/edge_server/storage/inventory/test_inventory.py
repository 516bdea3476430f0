"""The inventory keeps what devices say and what operators set, each in its own right."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.fleet.page.device_rows import device_detail
from edge_server.storage.inventory import inventory as inventory_module
from edge_server.storage.inventory import rows as rows_module
from edge_server.storage.inventory.fleet_file import FleetRow
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.inventory.listing import list_inventory
from schemas.errors import ConfigError
from schemas.messages import Birth, Death, Telemetry
from schemas.messages.presence import Shown
from schemas.selectors import parse_where
from schemas.values import BoardState, CapabilityProfile, DataCard, SkippedFiles

CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    yield inventory
    inventory.close()


def born(device: str, *, session: int = 1, **fields: object) -> Birth:
    return Birth(federation="home", device=device, session=session, data=CARD, **fields)


def died(device: str, *, session: int = 1) -> Death:
    return Death(federation="home", device=device, session=session)


def heated(device: str, *, session: int = 1) -> Telemetry:
    board = BoardState(celsius=61.0)
    return Telemetry(federation="home", device=device, session=session, phase="idle", board=board)


def test_a_birth_is_kept_with_its_versions_and_labels(inventory: Inventory) -> None:
    profile = CapabilityProfile(machine="Raspberry Pi 4", software={"torch": "2.13.0"})
    birth = born("pi-1", profile=profile, labels={"site": "barn"}, model="v1", certificate_until=9e8)
    assert inventory.record_birth(birth, 100.0)
    device = inventory.device("home", "pi-1")
    assert device is not None
    assert (device.alive, device.seen_at, device.certificate_until) == (True, 100.0, 9e8)
    assert (device.machine, device.versions["torch"], device.model) == ("Raspberry Pi 4", "2.13.0", "v1")
    assert device.labels == {"site": "barn"}


def test_broken_files_are_kept_until_a_birth_has_none(inventory: Inventory, tmp_path: Path) -> None:
    skipped = SkippedFiles(files=1, of=20, first="a.jpg: empty")
    broken = CARD.model_copy(update={"skipped": skipped})
    inventory.record_birth(born("pi-1").model_copy(update={"data": broken}), 1.0)
    assert [device.skipped for device in inventory.devices()] == [skipped]
    (listed,) = list_inventory(tmp_path / "inventory.sqlite", parse_where(""))
    assert listed.skipped == skipped.model_dump()
    (row,) = (device_detail(device) for device in inventory.devices())
    assert row["broken_files"] == "1 of 20 files are broken and left out; the first: a.jpg: empty"
    inventory.record_birth(born("pi-1", session=2), 2.0)
    assert [device.skipped for device in inventory.devices()] == [None]


@pytest.mark.parametrize(
    ("field", "label"),
    [
        (name, mark.label)
        for name, info in Birth.model_fields.items()
        for mark in info.metadata
        if isinstance(mark, Shown)
    ],
)
def test_a_marked_text_of_a_birth_is_shown_until_a_birth_is_without_it(
    inventory: Inventory, field: str, label: str
) -> None:
    for session, text in enumerate(("some text", ""), start=1):
        inventory.record_birth(born("pi-1", session=session, **{field: text}), 1.0)
        (row,) = (device_detail(device) for device in inventory.devices())
        assert row["shown"] == ({label: text} if text else {})


def test_the_operators_label_wins_over_the_devices(inventory: Inventory) -> None:
    inventory.record_birth(born("pi-1", labels={"site": "barn", "role": "camera"}), 1.0)
    inventory.set_labels("home", "pi-1", {"site": "field"})
    inventory.record_birth(born("pi-1", session=2, labels={"site": "barn", "role": "scale"}), 2.0)
    assert [device.labels for device in inventory.devices()] == [{"site": "field", "role": "scale"}]
    inventory.set_labels("home", "pi-1", {"site": None})
    assert inventory.devices(parse_where("site=barn,role=scale"))
    assert not inventory.devices(parse_where("site=field"))


def test_a_device_is_followed_again_after_another_one_has_had_its_name(inventory: Inventory) -> None:
    inventory.record_birth(born("pi-1", session=5, labels={"site": "barn"}), 10.0)
    inventory.record_birth(born("pi-1", session=900), 11.0)
    assert inventory.record_birth(born("pi-1", session=6, labels={"site": "barn"}), 12.0)
    assert inventory.record_telemetry(heated("pi-1", session=6), 13.0)
    assert inventory.record_death(died("pi-1", session=6), 14.0)
    assert [(device.alive, device.labels) for device in inventory.devices()] == [(False, {"site": "barn"})]
    inventory.record_birth(born("pi-1", session=8), 15.0, site="loft")
    assert not inventory.record_birth(born("pi-1", session=7), 16.0)


def test_what_an_older_session_says_changes_nothing(inventory: Inventory) -> None:
    inventory.record_birth(born("pi-1", session=5), 10.0)
    assert not inventory.record_death(died("pi-1", session=4), 11.0)
    assert not inventory.record_telemetry(heated("pi-1", session=4), 12.0)
    device = inventory.device("home", "pi-1")
    assert device is not None
    assert (device.alive, device.seen_at, device.board) == (True, 10.0, None)
    assert inventory.record_telemetry(heated("pi-1", session=5), 13.0)
    assert inventory.record_death(died("pi-1", session=5), 14.0)
    device = inventory.device("home", "pi-1")
    assert device is not None
    assert device.board is not None
    assert (device.alive, device.seen_at, device.board.celsius) == (False, 14.0, 61.0)


def test_an_unknown_device_cannot_die(inventory: Inventory) -> None:
    assert not inventory.record_death(died("nobody"), 1.0)
    assert not inventory.record_telemetry(heated("nobody"), 1.0)
    assert inventory.devices() == []


def test_a_site_is_a_label_unless_one_is_set(inventory: Inventory) -> None:
    inventory.record_birth(born("barn.pi-1"), 1.0, site="barn")
    assert inventory.devices(parse_where("site=barn"))
    inventory.set_labels("home", "barn.pi-1", {"site": "loft"})
    assert inventory.devices(parse_where("site=loft"))


def test_a_new_board_takes_the_place_of_a_dead_one(inventory: Inventory) -> None:
    inventory.add("home", "pi-1", own_labels={"site": "barn"}, note="above the door")
    inventory.replace("home", "pi-1", "pi-1b", 50.0)
    assert [device.device for device in inventory.devices()] == ["pi-1b"]
    new = inventory.device("home", "pi-1b")
    assert new is not None
    assert (new.replaces, new.note, new.labels) == ("pi-1", "above the door", {"site": "barn"})
    old = inventory.device("home", "pi-1")
    assert old is not None
    assert old.removed_at == 50.0
    assert [device.device for device in inventory.devices(removed=True)] == ["pi-1", "pi-1b"]
    with pytest.raises(ConfigError, match="removed"):
        inventory.replace("home", "pi-1", "pi-1c", 51.0)


def test_labels_of_an_unknown_device_and_too_many_are_refused(inventory: Inventory) -> None:
    with pytest.raises(ConfigError, match="not in the inventory"):
        inventory.set_labels("home", "nobody", {"site": "barn"})
    inventory.add("home", "pi-1")
    with pytest.raises(ConfigError, match="17 labels"):
        inventory.set_labels("home", "pi-1", {f"k{number}": "v" for number in range(17)})
    device = inventory.device("home", "pi-1")
    assert device is not None
    assert device.labels == {}


def test_two_processes_may_write_and_each_sees_that_the_other_has(tmp_path: Path) -> None:
    service, command = (Inventory(tmp_path / "inventory.sqlite") for _ in range(2))
    before = service.changed_elsewhere()
    service.record_birth(born("pi-1"), 1.0)
    assert service.changed_elsewhere() == before
    command.set_labels("home", "pi-1", {"site": "barn"})
    assert service.changed_elsewhere() != before
    assert service.labels("home") == {"pi-1": {"site": "barn"}}
    service.close()
    command.close()


def test_of_many_devices_only_the_chosen_ones_become_values(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = [{"site": f"s{number % 50}"} for number in range(2000)]
    rows = [FleetRow(str(number), f"pi-{number}", labels=labels[number]) for number in range(2000)]
    inventory.take_rows(rows, "home")
    made: list[str] = []
    whole = rows_module.device_of
    monkeypatch.setattr(inventory_module, "device_of", lambda row: made.append(row[1]) or whole(row))
    assert len(inventory.devices(parse_where("site=s7"))) == len(made) == 40
