"""`edge-server enroll --from` enrols a whole fleet or nothing, goes on after an interruption; `--list`."""

import json
import tarfile
import tomllib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.security.identity import bundle
from edge_server.security.identity.authority import open_authority
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory

FLEET = "device,label.site,label.role,note\npi-1,barn,camera,by the door\npi-2,field,,\npi-3,barn,scale,\n"

Enroll = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def enroll(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Enroll:
    def run(*words: str) -> tuple[int, Any, str]:
        folders = ["--authority", str(tmp_path / "authority"), "--out", str(tmp_path / "out")]
        code = EDGE_SERVER.run(
            ["enroll", *folders, "--service", str(tmp_path / "service"), "--format", "json", *words]
        )
        out, err = capsys.readouterr()
        return code, json.loads(out) if out else None, err

    return run


def fleet(tmp_path: Path, text: str = FLEET) -> str:
    path = tmp_path / "fleet.csv"
    path.write_text(text)
    return str(path)


def test_nothing_is_renewed_by_an_authority_that_does_not_exist(enroll: Enroll, tmp_path: Path) -> None:
    code, _, err = enroll("pi-1", "--renew")
    assert code == 2
    assert "there is no authority" in err
    assert "--federation NAME" in err
    assert not (tmp_path / "authority").exists()


def test_the_commands_to_go_on_with_name_the_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    federation = ["--federation", "home", "--service", str(tmp_path / "service")]
    out = ["--out", str(tmp_path / "out")]
    assert EDGE_SERVER.run(["enroll", "--from", fleet(tmp_path), "--code", *federation, *out]) == 0
    assert "edge-server enroll --serve --federation home\n" in capsys.readouterr().out
    assert EDGE_SERVER.run(["enroll", "pi-7", "--code", *federation, *out]) == 0
    assert "edge-server enroll --serve --federation home\n" in capsys.readouterr().out
    assert EDGE_SERVER.run(["revoke", "pi-7", *federation]) == 0
    assert "edge-server revoke pi-7 --evict --federation home\n" in capsys.readouterr().out


def test_each_row_gets_an_archive_and_a_place_in_the_inventory(enroll: Enroll, tmp_path: Path) -> None:
    code, done, err = enroll("--from", fleet(tmp_path))
    assert code == 0
    assert [(row["device"], row["kept"]) for row in done["devices"]] == [
        ("pi-1", False),
        ("pi-2", False),
        ("pi-3", False),
    ]
    assert f"2 of 3: {tmp_path / 'out' / 'pi-2.tar'} written" in err
    with tarfile.open(tmp_path / "out" / "pi-1.tar") as archive:
        file = archive.extractfile("pi-1/client.toml")
        assert file is not None
        assert tomllib.loads(file.read().decode())["label"] == ["role=camera", "site=barn"]
    with closing(Inventory(tmp_path / "service" / "inventory.sqlite")) as inventory:
        first = inventory.of_name("pi-1")
    assert (first.own_labels, first.note) == ({"role": "camera", "site": "barn"}, "by the door")
    assert first.certificate_until is not None
    assert first.enrolled_at is not None
    entries = list(audit_log.read_entries(tmp_path / "service" / "audit.jsonl"))
    assert [entry.target for entry in entries] == [f"federation/pi-{number}" for number in (1, 2, 3)]


def test_after_an_interruption_the_same_command_goes_on(
    enroll: Enroll, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = bundle.write_private

    def no_room(path: Path, data: bytes) -> None:
        if path.name == "pi-2.tar":
            raise OSError(28, "No space left on device")
        written(path, data)

    monkeypatch.setattr(bundle, "write_private", no_room)
    assert enroll("--from", fleet(tmp_path))[0] == 1
    first = (tmp_path / "out" / "pi-1.tar").read_bytes()
    monkeypatch.undo()
    code, done, _ = enroll("--from", fleet(tmp_path))
    assert (code, [row["kept"] for row in done["devices"]]) == (0, [True, False, False])
    assert (tmp_path / "out" / "pi-1.tar").read_bytes() == first


def test_a_label_that_was_changed_since_stays(enroll: Enroll, tmp_path: Path) -> None:
    enroll("--from", fleet(tmp_path))
    with closing(Inventory(tmp_path / "service" / "inventory.sqlite")) as inventory:
        inventory.set_labels("federation", "pi-1", {"site": "attic"})
        assert enroll("--from", fleet(tmp_path))[0] == 0
        assert inventory.of_name("pi-1").own_labels["site"] == "attic"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"{FLEET}pi-1,,,\n", "row 5: 'pi-1' is in row 2 already"),
        (f"{FLEET}edge-server,,,\n", "row 5: 'edge-server' is the name of a part of the server"),
        (f"{FLEET}known,,,\n", "row 5: 'known' is enrolled already"),
        (f"{FLEET}a b,,,\n", "row 5: 'a b' is not a name"),
        ("device,colour\npi-1,red\n", "row 1: unknown column 'colour'"),
        ("device,federation\npi-1,other\n", "row 2: 'pi-1' is of federation 'other'"),
        ("device,removed-at\npi-1,2026-01-01\n", "row 2: 'pi-1' was removed"),
    ],
)
def test_a_fleet_with_a_wrong_row_changes_nothing(
    enroll: Enroll, tmp_path: Path, text: str, words: str
) -> None:
    assert enroll("known")[0] == 0
    (tmp_path / "out" / "known.tar").unlink()
    code, done, err = enroll("--from", fleet(tmp_path, text))
    assert (code, done) == (2, None)
    assert words in err
    assert err.count("\n") == 1
    assert open_authority(tmp_path / "authority").devices() == ["known"]
    assert not list((tmp_path / "out").iterdir())


def test_a_wrong_fleet_makes_no_authority(enroll: Enroll, tmp_path: Path) -> None:
    code, _, err = enroll("--from", fleet(tmp_path, "device\nedge-server\n"))
    assert (code, "row 2: 'edge-server' is the name" in err) == (2, True)
    assert not (tmp_path / "authority").exists()


def test_codes_are_issued_once_and_listed(enroll: Enroll, tmp_path: Path) -> None:
    assert enroll("old")[0] == 0
    code, done, _ = enroll("--code", "--from", fleet(tmp_path))
    assert (code, Path(done["devices"][0]["file"]).name) == (0, "pi-1.code")
    text = (tmp_path / "out" / "pi-1.code").read_bytes()
    assert all(row["kept"] for row in enroll("--code", "--from", fleet(tmp_path))[1]["devices"])
    assert (tmp_path / "out" / "pi-1.code").read_bytes() == text
    open_authority(tmp_path / "authority").revoke("old")
    code, rows, _ = enroll("--list")
    assert [(row["device"], row["state"]) for row in rows] == [
        ("old", "revoked"),
        ("pi-1", "invited"),
        ("pi-2", "invited"),
        ("pi-3", "invited"),
    ]
    assert rows[1]["labels"] == {"role": "camera", "site": "barn"}


def test_a_code_carries_no_data_source(enroll: Enroll, tmp_path: Path) -> None:
    code, _, err = enroll("--code", "--from", fleet(tmp_path, "device,data\npi-1,folder:/srv\n"))
    assert (code, "row 2: a code carries no `data`" in err) == (2, True)


def test_one_device_gets_its_labels_and_note(enroll: Enroll, tmp_path: Path) -> None:
    assert enroll("pi-1", "--label", "site=barn", "--note", "by the door")[0] == 0
    code, rows, _ = enroll("--list")
    assert (rows[0]["state"], rows[0]["labels"], code) == ("enrolled", {"site": "barn"}, 0)
    code, _, err = enroll("pi-2", "--label", "site")
    assert (code, "a label is KEY=VALUE" in err) == (2, True)


def test_without_a_service_folder_it_says_what_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--authority", str(tmp_path / "authority"), "--out", str(tmp_path / "out")]
    assert EDGE_SERVER.run(["enroll", *folders, "--from", fleet(tmp_path)]) == 0
    assert "edge-server inventory import" in capsys.readouterr().err
    code = EDGE_SERVER.run(["enroll", "pi-9", *folders, "--note", "on the roof"])
    assert (code, "and there is none: name" in capsys.readouterr().err) == (2, True)
