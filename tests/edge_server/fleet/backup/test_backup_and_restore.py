"""What is backed up comes back: rows, bytes, modes, keys; an increment stores only what its parents lack."""

import json
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.coordinator.run_start import lock_folder
from edge_server.fleet.backup.archive import Chain
from edge_server.fleet.backup.making import make_backup
from edge_server.fleet.backup.manifest import BackupManifest
from edge_server.fleet.backup.sealing import Sealer
from edge_server.fleet.backup.sources import sources_of
from edge_server.fleet.queue.job import Job
from edge_server.fleet.queue.journal import JobJournal
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.journal_reader import JournalReader
from schemas.errors import ConfigError
from tests.edge_server.fleet.backup.small_service import (
    KEY,
    NOW,
    PASSPHRASE,
    SEALER,
    SmallService,
    tree,
    write,
)
from tests.edge_server.rounds.by_hand import NAME


def test_a_service_comes_back_as_it_was(service: SmallService) -> None:
    service.backup("a.backup")
    new = service.restore("a.backup")
    before, after = tree(service.folder.path), tree(new)
    changed = {
        "audit.jsonl",
        "runs/home/history.jsonl",
        "runs/home/job.log",
        *(name for name in before if "sqlite" in name),
    }
    gone = {"runs/home/lock", "runs/home/job.lock", f"runs/home/blobs/{'b' * 64}.part"}
    assert before.keys() - after.keys() == gone
    assert {name: after[name] for name in before.keys() - gone - changed} == {
        name: before[name] for name in before.keys() - gone - changed
    }
    assert after["runs/home/history.jsonl"] == b'{"round": 1}\n'
    assert after["runs/home/job.log"] == b"round 1\n"
    assert after["authority/home/ca.key"] == KEY
    with closing(Inventory(new / "inventory.sqlite")) as inventory:
        device = inventory.device(NAME, "pi")
    assert device is not None
    assert device.labels == {"site": "barn"}
    assert [entry.what for entry in audit_log.read_entries(new / "audit.jsonl")] == ["label", "restore"]
    assert audit_log.verify(new / "audit.jsonl") is None
    assert (new / "releases" / "empty").is_dir()
    assert (new / "releases" / "current").readlink() == Path("empty")
    assert (new / "authority" / "home" / "codes").is_dir()
    modes = {name: (new / name).stat().st_mode & 0o777 for name in ("service.toml", "runs/home/signing.key")}
    assert modes == {"service.toml": 0o644, "runs/home/signing.key": 0o600}


def test_a_restored_run_goes_on_in_a_later_epoch_under_later_numbers(service: SmallService) -> None:
    service.backup("a.backup")
    new = service.restore("a.backup")
    with closing(JournalReader(new / "runs" / "home" / "journal.sqlite")) as reader:
        assert reader.restored_attempt() == int(NOW)
        assert reader.epochs() == (1, 1001)
        assert [task[:2] for task in reader.tasks()] == [("pi", 2)]
    with closing(JournalReader(service.run / "journal.sqlite")) as reader:
        assert (reader.restored_attempt(), reader.epochs()) == (0, ())


def test_keys_are_sealed_and_a_wrong_passphrase_opens_nothing(service: SmallService) -> None:
    service.backup("a.backup")
    with zipfile.ZipFile(service.base / "a.backup") as archive:
        assert not any(b"secret" in archive.read(name) for name in archive.namelist())
    assert (service.base / "a.backup").stat().st_mode & 0o777 == 0o600
    with closing(Chain.open(service.base / "a.backup")) as chain:
        assert chain.manifest.seal is not None
        with pytest.raises(ConfigError, match="not the passphrase"):
            Sealer.of(chain.manifest.seal, PASSPHRASE + "s")
        assert Sealer.of(chain.manifest.seal, PASSPHRASE)
    with pytest.raises(ConfigError, match="fewer than 8 characters"):
        Sealer.new("short")


def test_without_a_passphrase_keys_and_authorities_are_left_out(service: SmallService) -> None:
    left_out = service.backup("a.backup", sealer=None).manifest.left_out
    assert left_out == (str(service.authority), str(service.run / "signing.key"))
    new = tree(service.restore("a.backup", sealer=None))
    assert not any(KEY in data for data in new.values())
    assert "inventory.sqlite" in new


def test_the_state_of_a_private_run_is_sealed_because_it_holds_the_secret_of_its_noise(
    service: SmallService,
) -> None:
    (service.run / "federation.toml").write_text('[privacy]\nmechanism = "gaussian"\n')
    manifest = service.backup("a.backup").manifest
    sealed = {file.path for file in manifest.files if file.sealed}
    assert "runs/home/checkpoints/round-0000001.safetensors" in sealed


def test_a_restored_service_is_backed_up_with_the_keys_that_lie_in_it_now(service: SmallService) -> None:
    password = write(service.base / "smtp", b"hunter2")
    federation = write(service.base / "nightly.toml", b"[federation]\n")
    with closing(JobJournal(service.folder.jobs)) as journal:
        journal.add(
            Job(
                name="nightly",
                action="run",
                words=("nightly.toml", "rounds=3"),
                federation=NAME,
                folder=str(service.base),
                since=0.0,
                owner="local:me",
            )
        )
    sources = sources_of(service.folder.path, (service.authority,), (), (password,))
    make_backup(service.base / "a.backup", sources, sealer=SEALER)
    new = service.restore("a.backup")
    inner = f"keys/{str(password).lstrip('/')}"
    assert (new / inner).read_bytes() == b"hunter2"
    assert (new / "files" / str(federation).lstrip("/")).read_bytes() == b"[federation]\n"
    with closing(JobJournal(new / "jobs.sqlite")) as journal:
        assert journal.job("nightly").words == ("nightly.toml", "rounds=3")
    federation.unlink()
    again = sources_of(new, (new / "authority" / "home",), (new / "runs" / "home",), (new / inner,))
    manifest = make_backup(service.base / "b.backup", again, sealer=SEALER).manifest
    assert [root.kind for root in manifest.roots] == ["service"]
    sealed = {file.path for file in manifest.files if file.sealed}
    assert {inner, "authority/home/ca.pem", "authority/home/ca.key"} <= sealed
    assert tree(service.restore("b.backup", to="newer")).keys() == tree(new).keys()


def test_an_increment_stores_only_what_its_parents_lack(service: SmallService) -> None:
    service.backup("a.backup", authority=False)
    write(service.run / "onnx.bin", b"tier 1" * 1000)
    second = service.backup("b.backup", since="a.backup", authority=False).manifest
    new = {file.path for file in second.files if file.digest in second.stored and not file.sealed}
    assert new == {"runs/home/onnx.bin"}
    third = service.backup("c.backup", since="b.backup").manifest
    assert third.parent is not None
    assert third.parent.name == "b.backup"
    restored = tree(service.restore("c.backup"))
    assert restored["runs/home/onnx.bin"] == b"tier 1" * 1000
    assert restored["runs/home/models/round-0001/state.safetensors"] == b"model" * 1000


def test_a_missing_or_wrong_parent_is_named(service: SmallService) -> None:
    service.backup("a.backup")
    service.backup("b.backup", since="a.backup")
    (service.base / "a.backup").rename(service.base / "elsewhere")
    with pytest.raises(ConfigError, match=r"builds on the earlier backup a\.backup, which is missing: put"):
        service.restore("b.backup")
    service.backup("a.backup")
    with pytest.raises(ConfigError, match=r"not the backup that b\.backup builds on"):
        service.restore("b.backup")
    assert not (service.base / "new").exists()


def test_nothing_is_restored_over_a_living_or_a_full_folder(service: SmallService) -> None:
    service.backup("a.backup")
    before = tree(service.folder.path)
    with pytest.raises(ConfigError, match="is not empty: name a new folder"):
        service.restore("a.backup", to="service")
    with (
        service.folder.lock_folder(),
        pytest.raises(ConfigError, match="in use: a server runs there: stop it"),
    ):
        service.restore("a.backup", to="service")
    with lock_folder(service.run), pytest.raises(ConfigError, match="home is in use: a server runs there"):
        service.restore("a.backup", to="service")
    for name in ("lock", "runs/home/lock"):
        (service.folder.path / name).write_bytes(before.get(name, b""))
    assert tree(service.folder.path) == {**before, "lock": b""}
    (service.base / "empty").mkdir()
    assert tree(service.restore("a.backup", to="empty"))


def test_a_damaged_backup_is_found_and_not_restored(service: SmallService) -> None:
    service.backup("a.backup")
    path = service.base / "a.backup"
    data = path.read_bytes()
    at = data.index(b"model" * 1000)
    path.write_bytes(data[:at] + b"M" + data[at + 1 :])
    with (
        closing(Chain.open(path)) as chain,
        pytest.raises(ConfigError, match=r"state.safetensors is damaged"),
    ):
        chain.verify()
    with pytest.raises(ConfigError, match="is damaged"):
        service.restore("a.backup")
    assert not (service.base / "new").exists()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ConfigError, match="not a backup, or not whole"):
        Chain.open(path)


def test_a_backup_of_a_newer_version_and_one_with_paths_outside_are_refused(service: SmallService) -> None:
    manifest = json.loads(service.backup("a.backup").manifest.model_dump_json())
    for change, words in (
        (
            {"format": 2, "later": True},
            "a backup of format 2; this program reads format 1: install the version",
        ),
        ({"files": [{**manifest["files"][0], "path": "../evil"}]}, "the manifest cannot be read"),
    ):
        with zipfile.ZipFile(service.base / "other.backup", "w") as archive:
            archive.writestr("manifest.json", json.dumps({**manifest, **change}))
        with pytest.raises(ConfigError, match=words):
            Chain.open(service.base / "other.backup")
    assert BackupManifest.model_validate(manifest)


def test_a_file_is_never_written_over_nor_into_what_is_backed_up(service: SmallService) -> None:
    service.backup("a.backup")
    with pytest.raises(ConfigError, match="exists: name a new file"):
        service.backup("a.backup")
    with pytest.raises(ConfigError, match="lies inside of what is backed up"):
        service.backup("service/b.backup")
    with pytest.raises(ConfigError, match="there is no folder"):
        service.backup("nowhere/b.backup")


def test_an_open_transaction_is_not_in_the_copy(service: SmallService) -> None:
    with closing(sqlite3.connect(service.folder.inventory, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE devices SET note = 'half'")
        service.backup("a.backup")
        writer.execute("COMMIT")
    with closing(Inventory(service.restore("a.backup") / "inventory.sqlite")) as inventory:
        device = inventory.device(NAME, "pi")
    assert device is not None
    assert device.note == ""
