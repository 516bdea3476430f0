"""A backup or a restore that fails or is killed leaves the folder, and the earlier backup, whole."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

import pytest

from edge_server.fleet.backup import making, restoring
from edge_server.fleet.backup.archive import Chain, owner_file
from tests.edge_server.fleet.backup.small_service import SmallService, tree
from tests.forked import start_forked


class FullDisk:
    """A file whose `writes`-th write fails."""

    def __init__(self, file: BinaryIO, writes: int) -> None:
        self._file, self._left = file, writes

    def write(self, data: bytes) -> int:
        self._left -= 1
        if self._left < 0:
            raise OSError(28, "No space left on device")
        return self._file.write(data)

    def __getattr__(self, name: str) -> object:
        return getattr(self._file, name)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def failures(make: Callable[[], object], monkeypatch: pytest.MonkeyPatch, module: object) -> int:
    """Let the n-th write of a file fail, for ever larger n until none fails; returns how often one did."""
    writes = 0
    for count in range(10**6):
        failed, writes = False, writes + max(1, writes // 4)

        def opened(path: Path, left: int = writes) -> FullDisk:
            return FullDisk(owner_file(path), left)

        monkeypatch.setattr(module, "owner_file", opened)
        try:
            make()
        except OSError:
            failed = True
        if not failed:
            return count
    raise AssertionError("it never ends")


def test_a_backup_that_fails_at_any_write_leaves_all_as_it_was(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.backup("a.backup")
    folder, earlier = tree(service.folder.path), (service.base / "a.backup").read_bytes()

    def again() -> None:
        try:
            service.backup("b.backup", since="a.backup")
        except OSError:
            assert not (service.base / "b.backup").exists()
            assert tree(service.folder.path) == folder
            raise

    assert failures(again, monkeypatch, making) > 5
    assert (service.base / "a.backup").read_bytes() == earlier
    assert {path.name for path in service.base.iterdir()} == {"a.backup", "b.backup", "service", "authority"}


def test_a_restore_that_fails_at_any_file_leaves_nothing_and_the_next_one_works(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.backup("a.backup")
    write, whole = restoring.write_file, tree(service.restore("a.backup", to="whole"))
    for number in range(len(whole) + 3):
        left = [number]

        def failing(*args: object, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "No space left on device")
            write(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(restoring, "write_file", failing)
        try:
            service.restore("a.backup")
        except OSError:
            assert not (service.base / "new").exists()
            assert not (service.base / ".new.restoring").exists()
            continue
        break
    assert number > 8
    assert tree(service.base / "new").keys() == whole.keys()


KILLED = """
import signal, sys
from pathlib import Path
from edge_server.cli.main import main
from edge_server.fleet.backup.archive import ArchiveWriter
from edge_server.fleet.backup import restoring

def stop_before(owner, name, count):
    call = getattr(owner, name)
    def counted(*args):
        nonlocal count
        count -= 1
        if count < 0:
            print("here", flush=True)
            signal.pause()
        return call(*args)
    setattr(owner, name, counted)

stop_before(ArchiveWriter, "store_file", 4)
stop_before(restoring, "write_file", 4)
main(sys.argv[1:])
"""


def killed(*words: object) -> None:
    """Kill a command with SIGKILL in the middle of its work."""
    process = start_forked("python", "-c", KILLED, *words)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.kill()
    process.wait()


def test_what_a_killed_backup_and_a_killed_restore_leave_is_removed_by_the_next(
    service: SmallService,
) -> None:
    service.backup("a.backup")
    folder, base = tree(service.folder.path), service.base
    words = ("--service", service.folder.path, "--without-keys")
    killed("backup", base / "b.backup", "--since", base / "a.backup", *words)
    assert not (base / "b.backup").exists()
    assert list(base.glob(".b.backup.*.part"))
    left = tree(service.folder.path)
    assert {name: data for name, data in left.items() if "/.backup-" not in name} == folder
    with closing(Chain.open(base / "a.backup")) as chain:
        chain.verify()
    service.backup("b.backup", since="a.backup")
    assert tree(service.folder.path) == folder
    assert not list(base.glob(".b.*"))

    killed("restore", base / "b.backup", "--to", base / "new", "--without-keys")
    assert not (base / "new").exists()
    assert (base / ".new.restoring").is_dir()
    assert tree(service.restore("b.backup")).keys() >= {"inventory.sqlite", "authority/home/ca.key"}
    assert not (base / ".new.restoring").exists()
