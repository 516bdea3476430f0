"""A backup that somebody has changed writes nothing outside of its folder, and no more than it announces."""

import json
import shutil
import types
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from edge_server.fleet.backup import archive as archives
from edge_server.fleet.backup import restoring
from edge_server.fleet.backup.archive import Chain
from schemas.errors import ConfigError
from tests.edge_server.fleet.backup.small_service import SmallService


def tampered(service: SmallService, **changes: Any) -> str:
    """The name of a backup with another manifest; a change is made by a function of the old value."""
    service.backup("a.backup", sealer=None, authority=False)
    with (
        zipfile.ZipFile(service.base / "a.backup") as old,
        zipfile.ZipFile(service.base / "b.backup", "w", zipfile.ZIP_DEFLATED) as new,
    ):
        manifest = json.loads(old.read(archives.MANIFEST))
        manifest |= {name: change(manifest[name]) for name, change in changes.items()}
        for name in old.namelist():
            new.writestr(name, json.dumps(manifest) if name == archives.MANIFEST else old.read(name))
    return "b.backup"


def linked(path: str, target: str) -> Any:
    return lambda links: [*links, {"path": path, "target": target}]


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("releases/out", "/etc"),
        ("releases/out", "../../victim"),
        ("releases/out", "a/../../../victim"),
        ("releases/out", ""),
    ],
)
def test_a_link_that_leaves_its_folder_is_refused(service: SmallService, path: str, target: str) -> None:
    name = tampered(service, links=linked(path, target))
    with pytest.raises(ConfigError, match=r"b\.backup: the manifest cannot be read: use another backup"):
        service.restore(name)


def test_nothing_is_appended_through_a_link(service: SmallService) -> None:
    victim = service.base / "victim"
    victim.write_text("mine")
    for target in (str(victim), "../victim"):
        name = tampered(
            service,
            files=lambda files: [file for file in files if file["path"] != "audit.jsonl"],
            links=linked("audit.jsonl", target),
        )
        with pytest.raises(ConfigError, match="the manifest cannot be read"):
            service.restore(name)
        assert victim.read_text() == "mine"
        (service.base / "a.backup").unlink()


@pytest.mark.parametrize(
    "path", ["audit.jsonl", "runs", "runs/home", "audit.jsonl/below", "releases/current/x"]
)
def test_two_entries_share_no_place(service: SmallService, path: str) -> None:
    name = tampered(service, links=linked(path, "empty"))
    with pytest.raises(ConfigError, match="the manifest cannot be read"):
        service.restore(name)


def test_the_file_of_a_parent_lies_beside_the_backup(service: SmallService) -> None:
    name = tampered(service, parent=lambda _: {"id": "0" * 32, "name": "../other"})
    with pytest.raises(ConfigError, match="the manifest cannot be read"):
        Chain.open(service.base / name)


def test_a_file_that_is_larger_than_announced_is_not_unpacked(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "COPY_BYTES", 1000)
    name = tampered(
        service, files=lambda files: [{**file, "size": min(file["size"], 2000)} for file in files]
    )
    with closing(Chain.open(service.base / name)) as chain:
        large = max(chain.manifest.files, key=lambda file: file.path.endswith("state.safetensors"))
        with (service.base / "unpacked").open("wb") as target, pytest.raises(ConfigError, match="is damaged"):
            chain.copy_to(large, target)
    assert (service.base / "unpacked").stat().st_size <= 2000


def test_nothing_is_written_where_the_announced_bytes_have_no_room(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = tampered(service, files=lambda files: [{**file, "size": 10**9} for file in files[:2]])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: types.SimpleNamespace(free=10**9))
    monkeypatch.setattr(restoring, "write_files", lambda *_: pytest.fail("something was written"))
    with pytest.raises(ConfigError, match=r"files of 2000 MB, and 1000 MB are free in .*: make room, or"):
        service.restore(name)
    assert not (service.base / "new").exists()


def test_a_huge_manifest_is_not_read(service: SmallService, monkeypatch: pytest.MonkeyPatch) -> None:
    service.backup("a.backup")
    monkeypatch.setattr(archives, "MAX_MANIFEST_BYTES", 100)
    with pytest.raises(ConfigError, match=r"a\.backup: its manifest is too large"):
        Chain.open(service.base / "a.backup")


def test_a_whole_backup_is_restored_as_before(service: SmallService) -> None:
    new = service.restore(tampered(service), sealer=None)
    assert (new / "releases" / "current").readlink() == Path("empty")
