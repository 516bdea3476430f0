"""A running server takes the labels that the operator sets meanwhile."""

from pathlib import Path

import pytest

from edge_server.coordinator.reception import watched_labels
from edge_server.storage.inventory.inventory import Inventory


def test_labels_are_taken_when_they_change_also_in_an_inventory_made_later(tmp_path: Path) -> None:
    with watched_labels(tmp_path, "home") as watch:
        assert watch.poll() is None
        inventory = Inventory(tmp_path / "inventory.sqlite")
        inventory.add("home", "pi-1", own_labels={"site": "barn"})
        inventory.add("other", "pi-1", own_labels={"site": "attic"})
        assert watch.poll() == {"pi-1": {"site": "barn"}}
        assert watch.poll() is None
        inventory.set_note("home", "pi-1", "by the door")
        assert watch.poll() is None
        inventory.set_labels("home", "pi-1", {"site": None})
        assert watch.poll() == {}
        inventory.close()


def test_a_damaged_inventory_stops_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "inventory.sqlite").write_bytes(b"no database" * 100)
    with watched_labels(tmp_path, "home") as watch:
        assert watch.poll() is None
        assert watch.poll() is None
    assert caplog.text.count("labels stay as they are") == 1
