"""Restoring a backup into a new folder: built aside, renamed when it is whole and on disk."""

import contextlib
import fcntl
import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from edge_client.security.identity.private_files import OWNER_FILE, OWNER_FOLDER
from edge_client.storage.atomic_files import sync
from edge_server.fleet.backup import archive, collecting, sealing, steady_files
from edge_server.fleet.backup.archive import Chain
from edge_server.fleet.backup.manifest import BackupManifest, SavedFile
from edge_server.storage import audit_log
from edge_server.storage.journal import Journal
from edge_server.storage.service_folder import ServiceFolder, is_locked
from schemas.errors import ConfigError


def restore_backup(
    chain: Chain,
    target: Path,
    *,
    sealer: sealing.Sealer | None,
    report: collecting.Report = lambda line: None,
    noted_as: str = "",
    now: float | None = None,
) -> tuple[Path, ...]:
    """Make `target` what was backed up, and return its unfinished runs; raises `ConfigError`.

    Without a `sealer` sealed files are left out. `target` must be new or empty; it appears in one step. The
    audit log of a service names the backup as `noted_as`.
    """
    check_target(target)
    target = target.absolute()
    target.parent.mkdir(parents=True, exist_ok=True)
    with _aside(target) as aside:
        _check_room(aside, chain.manifest)
        write_files(chain, aside, sealer, report)
        runs = tuple(folder for folder in _runs(aside) if mark_restored(folder, now or time.time()))
        _note(chain.manifest, aside, noted_as)
        _sync_all(aside)
        check_target(target)
        aside.replace(target)
        sync(target.parent)
    return tuple(target / run.relative_to(aside) for run in runs)


def check_target(target: Path) -> None:
    """Raise `ConfigError` unless a backup may be restored to this folder."""
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir():
        raise ConfigError(f"{target} is not a folder", remedy="name a new one")
    for lock in (target / collecting.LOCK, *target.glob(f"runs/*/{collecting.LOCK}")):
        if is_locked(lock, unreadable=lock.exists()):
            raise ConfigError(
                f"{lock.parent} is in use: a server runs there",
                remedy="stop it, and restore to another folder",
            )
    if any(target.iterdir()):
        raise ConfigError(f"{target} is not empty", remedy="name a new folder, or move this one away")


def _check_room(folder: Path, manifest: BackupManifest) -> None:
    free = shutil.disk_usage(folder).free
    if manifest.bytes > free:
        raise ConfigError(
            f"the backup has files of {manifest.bytes / 1e6:.0f} MB, and {free / 1e6:.0f} MB are free in "
            f"{folder.parent}",
            remedy="make room, or restore elsewhere",
        )


def sealer_of(manifest: BackupManifest, passphrase: str) -> sealing.Sealer | None:
    """What opens the backup's keys; raises `ConfigError` for another passphrase."""
    return None if manifest.seal is None else sealing.Sealer.of(manifest.seal, passphrase)


@contextlib.contextmanager
def _aside(target: Path) -> Iterator[Path]:
    """An empty folder next to the target, removed at the end unless it was renamed.

    What a killed restore has left there is removed first.
    """
    aside = target.with_name(f".{target.name}.restoring")
    aside.mkdir(mode=OWNER_FOLDER, exist_ok=True)
    descriptor = os.open(aside, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(
                "another restore writes there", place=target, remedy="wait for its end"
            ) from None
        _empty(aside)
        try:
            yield aside
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    finally:
        os.close(descriptor)


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def write_files(chain: Chain, aside: Path, sealer: sealing.Sealer | None, report: collecting.Report) -> None:
    manifest, written = chain.manifest, 0
    for folder in manifest.folders:
        (aside / folder.path).mkdir(parents=True, exist_ok=True)
    for file in manifest.files:
        if file.sealed and sealer is None:
            continue
        path = aside / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(chain, file, path, sealer)
        before, written = written, written + file.size
        if before // collecting.REPORT_EVERY_BYTES < written // collecting.REPORT_EVERY_BYTES:
            report(f"restored {written / 2**30:.0f} GiB")
    for link in manifest.links:
        (aside / link.path).symlink_to(link.target)
    for folder in reversed(manifest.folders):
        (aside / folder.path).chmod(folder.mode | 0o700)


def write_file(chain: Chain, file: SavedFile, path: Path, sealer: sealing.Sealer | None) -> None:
    if file.sealed:
        assert sealer is not None
        sealed = io.BytesIO()
        chain.copy_to(file, sealed)
        with archive.owner_file(path) as plain:
            plain.write(sealer.open_sealed(sealed.getvalue(), file.path))
        path.chmod(OWNER_FILE)
    else:
        with archive.owner_file(path) as plain:
            chain.copy_to(file, plain)
        path.chmod(file.mode)
    os.utime(path, ns=(file.mtime, file.mtime))


def _note(manifest: BackupManifest, aside: Path, name: str) -> None:
    if not any(root.kind == "service" for root in manifest.roots):
        return
    audit_log.append_entry(
        ServiceFolder(aside).audit,
        who=audit_log.local_user(),
        what="restore",
        target=name,
        after={"id": manifest.id, "made-at": manifest.made_at},
    )


def _runs(folder: Path) -> Iterator[Path]:
    for path, folders, _ in os.walk(folder):
        if collecting.is_run(Path(path)):
            folders.clear()
            yield Path(path)


def _sync_all(folder: Path) -> None:
    for path, _, files in os.walk(folder):
        for name in files:
            if not (Path(path) / name).is_symlink():
                sync(Path(path) / name)
        sync(Path(path))


# Marking a restored run, so that no other server's messages are taken for those of the one that goes on.
#
# The server that was backed up may have gone on after the backup, and may still live. Therefore the restored
# run goes on in a later epoch of the lease, and numbers its plannings above all that the other can have used.

EPOCHS = 1000  # More takeovers than happen between two backups


def mark_restored(run: Path, now: float) -> bool:
    """Write into the journal of an unfinished run that it was restored; returns whether it is unfinished.

    Plannings go on from `now`, in seconds since 1970: a server plans less than one round a second, so that
    a later restore of the same backup has later numbers.
    """
    path = run / collecting.JOURNAL
    if not steady_files.is_sqlite(path) or (run / "summary.json").exists():
        return False
    last = collecting.progress_of(path).attempt
    if not last:
        return False
    with closing(Journal(path)) as journal:
        journal.write_restoration(max(last, int(now)), epochs=EPOCHS, at=now)
    return True
