"""Making a backup: everything is collected into a file aside, which is renamed when it is whole."""

import contextlib
import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from edge_client.security.identity.private_files import private_folder
from edge_client.storage.atomic_files import written_aside
from edge_server.fleet.backup import collecting, sealing, steady_files
from edge_server.fleet.backup.archive import ArchiveWriter, Chain, owner_file
from edge_server.fleet.backup.manifest import BackupManifest, Parent, SavedRoot
from edge_server.fleet.backup.sources import Sources
from schemas.errors import ConfigError

SUFFIX = ".backup"  # Usual end of a backup's name
WORK = ".work"  # End of the name of the folder for copies of SQLite files, next to the backup's file


@dataclass(frozen=True)
class MadeBackup:
    """A backup that is on disk; `stored_bytes` is the size of its file."""

    manifest: BackupManifest
    stored_bytes: int


def make_backup(
    path: Path,
    sources: Sources,
    *,
    sealer: sealing.Sealer | None,
    since: Path | None = None,
    report: collecting.Report = lambda line: None,
    now: float | None = None,
) -> MadeBackup:
    """Write a backup to a new file; everything may go on meanwhile. Raises `ConfigError`.

    With `since`, files that this earlier backup or its parents have are not stored again. Without a `sealer`
    keys are left out. If it fails or is killed, `path` does not exist.
    """
    roots = sources.roots()
    _check_place(path, roots)
    parent, known = _parent(since, path)
    remove_left(path)
    with (
        _work_folder(path) as work,
        written_aside(path, opened=owner_file) as file,
        ArchiveWriter(file, known) as archive,
    ):
        collector = collecting.Collector(archive, sealer, work, report, sources.sealed_folders)
        for root in roots:
            _add(collector, root)
        manifest = BackupManifest(
            id=secrets.token_hex(16),
            program=program_version(),
            made_at=time.time() if now is None else now,
            parent=parent,
            roots=roots,
            files=tuple(collector.files),
            folders=tuple(collector.folders),
            links=tuple(collector.links),
            stored=frozenset(archive.stored),
            left_out=tuple(sorted(set(collector.left_out))),
            seal=None if sealer is None else sealer.seal,
        )
        archive.finish(manifest)
    return MadeBackup(manifest, path.stat().st_size)


def program_version() -> str:
    try:
        return version("edge-federation")
    except PackageNotFoundError:
        return "unknown"


def remove_left(path: Path) -> None:
    """Remove what killed backups have left next to this path: of the same name, and all `*.backup`."""
    names = {*path.parent.glob(f".{path.name}.*"), *path.parent.glob(f".*{SUFFIX}.*")}
    for left in names:
        number = left.stem.rpartition(".")[2]
        if not number.isdigit() or steady_files.is_running(number):
            continue
        if left.name.endswith(WORK):
            shutil.rmtree(left, ignore_errors=True)
        elif left.name.endswith(".part"):
            left.unlink(missing_ok=True)


def _add(collector: collecting.Collector, root: SavedRoot) -> None:
    origin = Path(root.origin)
    if root.kind in ("key", "file"):
        collector.add_file(origin, root.path, secret=root.kind == "key")
        return
    with _hold_lock(origin) if root.kind == "authority" else contextlib.nullcontext():
        collector.add_folder(origin, root.path, secret=root.kind == "authority")


@contextlib.contextmanager
def _hold_lock(authority: Path) -> Iterator[None]:
    """Keep other processes from changing an authority meanwhile, if this user may."""
    try:
        file = (authority / collecting.LOCK).open("a")
    except OSError:
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _work_folder(path: Path) -> Iterator[Path]:
    work = private_folder(path.parent / f".{path.name}.{os.getpid()}{WORK}")
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _parent(since: Path | None, path: Path) -> tuple[Parent | None, frozenset[str]]:
    if since is None:
        return None, frozenset()
    with contextlib.closing(Chain.open(since)) as chain:
        if since.resolve().parent != path.resolve().parent:
            raise ConfigError(
                "an incremental backup lies next to its parent",
                place=path,
                remedy=f"write it to {since.resolve().parent}",
            )
        return Parent(id=chain.manifest.id, name=since.name), chain.manifest.digests


def _check_place(path: Path, roots: Sequence[SavedRoot]) -> None:
    if path.exists():
        raise ConfigError(f"{path} exists", remedy="name a new file, or remove it")
    if not path.parent.is_dir():
        raise ConfigError(
            f"there is no folder {path.parent}", place=path, remedy="make it, or name another place"
        )
    inside = path.resolve()
    for root in roots:
        if inside.is_relative_to(Path(root.origin)):
            raise ConfigError(
                f"{path} lies inside of what is backed up", remedy=f"name a place outside of {root.origin}"
            )
