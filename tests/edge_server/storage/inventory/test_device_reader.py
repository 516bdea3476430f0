"""Devices that are read again and again are made into values only where their rows have changed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.storage.inventory import inventory as inventories
from edge_server.storage.inventory.inventory import DeviceReader, Inventory


@pytest.fixture
def inventory(tmp_path: Path) -> Iterator[Inventory]:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    for device in ("pi-1", "pi-2", "pi-3"):
        inventory.add("home", device)
    yield inventory
    inventory.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the devices that were made into values."""
    names: list[str] = []
    make = inventories.device_of
    monkeypatch.setattr(inventories, "device_of", lambda row: names.append(row[1]) or make(row))
    return names


def test_only_changed_devices_are_made_again(inventory: Inventory, made: list[str]) -> None:
    reader, devices = DeviceReader(inventory), inventory.devices()
    made.clear()
    assert [*reader.devices()] == devices
    inventory.set_note("home", "pi-2", "in the attic")
    assert [device.note for device in reader.devices()] == ["", "in the attic", ""]
    assert made == ["pi-1", "pi-2", "pi-3", "pi-2"]


def test_an_unchanged_inventory_is_not_read(
    inventory: Inventory, monkeypatch: pytest.MonkeyPatch, made: list[str]
) -> None:
    reader = DeviceReader(inventory)
    before = reader.devices()
    monkeypatch.setattr(inventory, "rows", lambda: pytest.fail("read again"))
    assert reader.devices() == before


def test_changes_of_another_connection_are_seen(
    inventory: Inventory, made: list[str], tmp_path: Path
) -> None:
    reader, other = DeviceReader(inventory), Inventory(tmp_path / "inventory.sqlite")
    reader.devices()
    other.set_note("home", "pi-3", "by hand")
    other.remove("home", "pi-1", 100.0)
    other.close()
    assert [(device.device, device.note) for device in reader.devices()] == [
        ("pi-2", ""),
        ("pi-3", "by hand"),
    ]
