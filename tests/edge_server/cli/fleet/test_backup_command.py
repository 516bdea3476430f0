"""`edge-server backup` and `restore` on the command line: what they print, record and refuse."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.cli.main import EDGE_SERVER
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a service, an authority and a passphrase."""
    (tmp_path / "pass").write_text("correct horse\n")
    with closing(Inventory(tmp_path / "service" / "inventory.sqlite")) as inventory:
        inventory.add("home", "pi")
    (tmp_path / "authority").mkdir()
    (tmp_path / "authority" / "ca.key").write_text("secret")
    (tmp_path / "fleet.pem").write_text("key")
    (tmp_path / "service" / "service.toml").write_text(
        f'[[federations]]\nname = "home"\nauthority = "{tmp_path}/authority"\nkey = "{tmp_path}/fleet.pem"\n'
    )
    return tmp_path


def edge_server(*words: object) -> int:
    return EDGE_SERVER.run([str(word) for word in words])


def test_a_backup_is_made_listed_verified_recorded_and_restored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, passphrase = folder / "a.backup", ("--passphrase-file", folder / "pass")
    assert edge_server("backup", file, "--service", folder / "service", *passphrase) == 0
    assert "4 files" in capsys.readouterr().out
    (entry,) = audit_log.read_entries(ServiceFolder(folder / "service").audit)
    assert (entry.what, entry.target) == ("backup", str(file))
    assert edge_server("backup", "--list", file) == 0
    listed = capsys.readouterr().out
    assert "authority/authority/ca.key" in listed
    assert "sealed" in listed
    assert edge_server("backup", "--verify", file, "--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["files"] == 4
    assert edge_server("restore", file, "--to", folder / "new", *passphrase) == 0
    assert f"is now {folder / 'new' / 'authority' / 'authority'}" in capsys.readouterr().out
    assert (folder / "new" / "authority" / "authority" / "ca.key").read_text() == "secret"
    key = folder / "new" / "keys" / str(folder / "fleet.pem").lstrip("/")
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("key", 0o600)
    restored = [entry.what for entry in audit_log.read_entries(ServiceFolder(folder / "new").audit)]
    assert restored == ["restore"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("backup", "name one FILE to write, or one with --list or --verify"),
        ("backup x.backup --service nowhere --without-keys", "there is no service folder"),
        ("backup x.backup --run {f}/service --without-keys", "there is no journal; is it a run folder?"),
        ("backup x.backup --service {f}/service", "the keys need a passphrase: give --passphrase-file"),
        ("backup x.backup --service {f}/service --passphrase-file {f}/gone", "cannot be read"),
        ("backup {f}/pass --service {f}/service --without-keys", "exists: name a new file"),
        ("backup --list {f}/pass", "not a backup, or not whole"),
        ("restore {f}/none.backup --to {f}/new", "name the file of a backup"),
        ("restore {f}/none.backup --to {f}/service", "is not empty: name a new folder"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    words: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edge_server(*words.format(f=folder).split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (folder / "new").exists()
