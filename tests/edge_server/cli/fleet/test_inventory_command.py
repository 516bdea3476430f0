"""`edge-server devices` lists the inventory; `edge-server inventory` changes it, and records each change."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.security.identity.authority import open_authority
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from schemas.messages import Birth
from schemas.values import CapabilityProfile, DataCard

CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)
SOFTWARE = {"edge-federation": "0.1.0", "torch": "2.9.0", "onnxruntime": "1.23.0"}

Server = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service folder with three devices; `pi-1` is connected, no federation has an authority."""
    folder = tmp_path / "service"
    monkeypatch.setenv("EDGE_SERVICE", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    inventory = Inventory(folder / "inventory.sqlite")
    profile = CapabilityProfile(machine="Raspberry Pi 4", software=SOFTWARE)
    birth = Birth(
        federation="home",
        device="pi-1",
        session=1,
        data=CARD,
        profile=profile,
        labels={"role": "camera"},
        model="v7",
    )
    inventory.record_birth(birth, 100.0)
    inventory.add("home", "pi-2", own_labels={"site": "barn"}, note="by the door")
    inventory.add("home", "pi-3", own_labels={"site": "field"})
    inventory.close()
    return folder


@pytest.fixture
def inventory(service: Path) -> Iterator[Inventory]:
    inventory = Inventory(service / "inventory.sqlite")
    yield inventory
    inventory.close()


@pytest.fixture
def run(service: Path, capsys: pytest.CaptureFixture[str]) -> Server:
    def run(*words: str, form: str = "json") -> tuple[int, Any, str]:
        code = EDGE_SERVER.run([*words, "--format", form])
        out, err = capsys.readouterr()
        return code, json.loads(out) if out and form == "json" else out, err

    return run


def names(rows: list[dict[str, Any]]) -> list[str]:
    return [row["device"] for row in rows]


def test_devices_are_chosen_by_label(run: Server) -> None:
    assert names(run("devices")[1]) == ["pi-1", "pi-2", "pi-3"]
    assert names(run("devices", "--where", "site in (barn,field)")[1]) == ["pi-2", "pi-3"]
    assert names(run("devices", "--where", "role=camera")[1]) == ["pi-1"]
    assert run("devices", "--where", "site==")[0] == 2


def test_the_table_has_versions_labels_and_when_a_device_was_seen(run: Server) -> None:
    _, out, _ = run("devices", form="table")
    first, second = out.splitlines()[1:3]
    assert all(word in first for word in ("pi-1", "now", "0.1.0", "2.9.0", "1.23.0", "v7", "role=camera"))
    assert all(word in second for word in ("pi-2", "never", "site=barn", "by the door"))
    assert "3 devices, 1 connected" in out


def test_labels_of_many_change_at_once_and_each_change_is_recorded(run: Server, service: Path) -> None:
    code, done, _ = run("inventory", "label", "--where", "site", "gpu=yes", "site-")
    assert (code, names(done)) == (0, ["pi-2", "pi-3"])
    assert names(run("devices", "--where", "gpu=yes,!site")[1]) == ["pi-2", "pi-3"]
    entries = list(audit_log.read_entries(service / "audit.jsonl"))
    assert [(entry.what, entry.target) for entry in entries] == [
        ("label", "home/pi-2"),
        ("label", "home/pi-3"),
    ]
    assert (entries[0].before, entries[0].after) == ({"labels": {"site": "barn"}}, {"labels": {"gpu": "yes"}})
    assert entries[0].who.startswith("local:")


def test_the_operators_label_wins_and_the_devices_returns(run: Server, inventory: Inventory) -> None:
    run("inventory", "label", "pi-1", "role=scale")
    assert inventory.of_name("pi-1").labels == {"role": "scale"}
    _, out, _ = run("inventory", "label", "pi-1", "role-", form="table")
    assert "'role' stays where a device states it itself" in out
    assert inventory.of_name("pi-1").labels == {"role": "camera"}


def test_a_note_is_one_line(run: Server, inventory: Inventory) -> None:
    assert run("inventory", "note", "pi-1", "on the roof")[1]["after"] == "on the roof"
    assert run("inventory", "note", "pi-1", "two\nlines")[0] == 2
    assert inventory.of_name("pi-1").note == "on the roof"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("label", "pi-4", "site=barn"), "'pi-4' is not in the inventory (did you mean"),
        (("label", "pi-1"), "which labels?"),
        (("label", "site=barn"), "which DEVICE?"),
        (("label", "pi-1", "Site=barn"), "label 'Site'"),
        (("label", "--where", "site=attic", "a=b"), "no device matches"),
        (("note", "pi-9", "x"), "(did you mean 'pi-1'?): `edge-server devices` lists all"),
        (("remove", "pi-1"), "pi-1 is connected: --yes"),
        (("remove", "--where", "site"), "chooses 2 devices (pi-2, pi-3): --yes"),
        (("remove",), "name one DEVICE"),
        (("replace", "pi-1", "pi-9"), "pi-1 is connected: --yes"),
        (("replace", "pi-2", "pi-2"), "cannot replace itself"),
        (("replace", "pi-2", "edge-server"), "the name of a part of the server"),
        (("export", "fleet.txt"), "end the file's name with .csv or .json"),
        (("export", f"{__file__}/fleet.csv"), "the folder cannot be made"),
        (("import", "missing.csv"), "there is no such file"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_and_changes_nothing(
    run: Server, service: Path, inventory: Inventory, words: tuple[str, ...], message: str
) -> None:
    before = inventory.devices(removed=True)
    code, _, err = run("inventory", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err
    assert inventory.devices(removed=True) == before
    assert not (service / "audit.jsonl").exists()


def test_a_new_board_takes_the_place_of_a_dead_one(run: Server, tmp_path: Path, inventory: Inventory) -> None:
    out, authority = ["--out", str(tmp_path / "out")], tmp_path / "data/edge-federation/authority/home"
    assert run("enroll", "pi-2", "--federation", "home", *out)[0] == 0
    assert run("enroll", "pi-9", "--federation", "home", *out)[0] == 0
    code, done, _ = run("inventory", "replace", "pi-2", "pi-9")
    assert (code, done["certificates"]) == (0, 1)
    new = inventory.of_name("pi-9")
    assert (new.own_labels, new.note, new.replaces) == ({"site": "barn"}, "by the door", "pi-2")
    assert inventory.of_name("pi-2").revoked_at is not None
    assert new.revoked_at is None
    assert not open_authority(authority).certificates("pi-2")
    assert open_authority(authority).certificates("pi-9")
    assert names(run("devices")[1]) == ["pi-1", "pi-3", "pi-9"]
    assert names(run("devices", "--removed")[1]) == ["pi-1", "pi-2", "pi-3", "pi-9"]
    assert run("inventory", "replace", "pi-9", "pi-10")[0] == 0
    assert inventory.predecessors("home", "pi-10") == ["pi-9", "pi-2"]
    assert run("inventory", "remove", "pi-2")[0] == 2


def test_removed_devices_are_revoked_and_recorded(run: Server, tmp_path: Path, service: Path) -> None:
    out, authority = ["--out", str(tmp_path / "out")], tmp_path / "data/edge-federation/authority/home"
    run("enroll", "pi-2", "--federation", "home", *out)
    code, done, _ = run("inventory", "remove", "--where", "site", "--yes")
    assert (code, [row["certificates"] for row in done]) == (0, [1, 0])
    assert not open_authority(authority).certificates("pi-2")
    assert names(run("devices")[1]) == ["pi-1"]
    last = list(audit_log.read_entries(service / "audit.jsonl"))[-1]
    assert (last.what, last.target, last.before["labels"]) == ("remove", "home/pi-3", {"site": "field"})


def test_a_revocation_is_in_the_inventory_and_in_the_audit_log(
    run: Server, tmp_path: Path, service: Path
) -> None:
    run("enroll", "pi-2", "--federation", "home", "--out", str(tmp_path / "out"))
    assert run("revoke", "pi-2", "--federation", "home")[0] == 0
    rows = run("devices", "--where", "device=pi-2")[1]
    assert rows[0]["revoked_at"] is not None
    assert [entry.what for entry in audit_log.read_entries(service / "audit.jsonl")] == ["enroll", "revoke"]


@pytest.mark.parametrize("suffix", ["csv", "json"])
def test_an_export_is_imported_elsewhere(
    run: Server, tmp_path: Path, inventory: Inventory, suffix: str
) -> None:
    path, other = tmp_path / f"fleet.{suffix}", tmp_path / "other"
    other.mkdir()
    assert run("inventory", "export", str(path))[1] == {"file": str(path), "devices": 3}
    code, done, _ = run("inventory", "import", str(path), "--service", str(other))
    assert (code, done) == (0, {"rows": 3, "new": 3, "changed": 0})
    assert run("inventory", "import", str(path))[1] == {"rows": 3, "new": 0, "changed": 0}
    rows = run("devices", "--service", str(other))[1]
    assert [(row["device"], row["own_labels"], row["note"]) for row in rows] == [
        (device.device, device.own_labels, device.note) for device in inventory.devices()
    ]


def test_rows_without_a_federation_are_of_the_one_that_the_service_follows(
    run: Server, tmp_path: Path, service: Path, inventory: Inventory
) -> None:
    (tmp_path / "fleet.csv").write_text("device,label.site\npi-4,barn\n")
    settings = service / "service.toml"
    settings.write_text('[[federations]]\nname = "shop"\n')
    assert run("inventory", "import", str(tmp_path / "fleet.csv"))[0] == 0
    assert inventory.of_name("pi-4").federation == "shop"
    settings.write_text(settings.read_text() + '[[federations]]\nname = "home"\n')
    code, _, err = run("inventory", "import", str(tmp_path / "fleet.csv"))
    assert (code, "with --federation: shop, home" in err) == (2, True)
    assert run("inventory", "import", str(tmp_path / "fleet.csv"), "--federation", "home")[1]["new"] == 1


def test_the_devices_of_an_unknown_federation_are_not_listed_as_none(run: Server, service: Path) -> None:
    (service / "service.toml").write_text('[[federations]]\nname = "shop"\n')
    assert run("devices", "--federation", "shop")[:2] == (0, [])
    for form in ("json", "table"):
        code, _, err = run("devices", "--federation", "hoem", form=form)
        assert (code, "has no federation 'hoem' (known: shop)" in err) == (2, True)


def test_without_a_service_folder_the_remedy_is_said(
    run: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_SERVICE", str(tmp_path / "none"))
    code, _, err = run("devices")
    assert (code, "there is no service folder" in err) == (2, True)


def test_a_removed_device_that_connects_shows(run: Server, inventory: Inventory) -> None:
    run("inventory", "remove", "pi-2")
    inventory.record_birth(Birth(federation="home", device="pi-2", session=9, data=CARD), 200.0)
    assert "pi-2" not in run("devices", form="table")[1]
    assert ", connected" in run("devices", "--removed", form="table")[1].splitlines()[2]


def test_listing_devices_imports_nothing_heavy(service: Path) -> None:
    program = (
        "import sys; from edge_server.cli.main import main; main(['devices', '--where', 'site=barn']);"
        "print(sorted({'torch', 'numpy', 'onnxruntime', 'paho', 'pydantic', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_authority_is_that_of_service_toml(run: Server, tmp_path: Path, service: Path) -> None:
    authority = tmp_path / "authority"
    (service / "service.toml").write_text(f'[[federations]]\nname = "home"\nauthority = "{authority}"\n')
    assert run("enroll", "pi-2", "--federation", "home", "--out", str(tmp_path / "out"))[0] == 0
    assert run("enroll", "--list", "--federation", "home")[1][0]["labels"] == {"site": "barn"}
    assert run("inventory", "remove", "pi-2")[1] == [{"device": "pi-2", "certificates": 1}]
    assert not open_authority(authority).certificates("pi-2")


def test_a_broker_that_cannot_be_told_undoes_nothing(
    run: Server, tmp_path: Path, inventory: Inventory
) -> None:
    assert run("enroll", "pi-2", "--federation", "home", "--out", str(tmp_path / "out"))[0] == 0
    missing = ("--mosquitto-pid-file", str(tmp_path / "no.pid"))
    code, done, err = run("inventory", "replace", "pi-2", "pi-9", *missing)
    assert (code, done["certificates"]) == (1, 1)
    assert "certificates are revoked, and the broker does not know it yet" in err
    assert inventory.of_name("pi-9").replaces == "pi-2"
