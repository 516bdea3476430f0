"""Atomic writes, under a temporary name, synced and renamed; and how much of a disk others may fill."""

import contextlib
import errno
import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO, NamedTuple, TextIO

from schemas.errors import ConfigError, PeerError, Reason

Opened = Callable[[Path], AbstractContextManager[BinaryIO]]  # how a file is opened for writing
_locked: list[TextIO] = []  # the open files of this process's locks
SYNCS_AT_ONCE = 8  # number of parallel syncs; file systems combine them


def write_synced(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write `data` to `path` atomically: a reader sees the old file or the new one, also after a power cut.

    Without `durable` the function does not wait for the disk: a power cut may then lose this file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _aside(path)
    with _gone_if_failed(temporary, path):
        temporary.write_bytes(data)
        put_in_place(temporary, path, durable=durable)


def usable_folder(path: Path, *, option: str) -> Path:
    """The folder that `option` names, created if missing; `ConfigError` if that is impossible."""
    remedy = "name a folder that this user may write to"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = f"the folder cannot be made: {error.strerror}"
        raise ConfigError(why, key=f"{option} {path}", remedy=remedy) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError("the folder cannot be written to", key=f"{option} {path}", remedy=remedy)
    return path


def lock_folder(path: Path, *, option: str) -> None:
    """Keep other processes from using this folder until this process ends; `ConfigError` if one does."""
    file = (path / "lock").open("a+")
    try:
        # Forked processes do not inherit a POSIX lock, so none of them holds it after this process.
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        file.seek(0)
        pid = file.read(20) or "unknown"
        file.close()
        raise ConfigError(
            f"another client, process {pid}, uses this folder",
            key=f"{option} {path}",
            remedy="end it, or give this one a name (--device-id) and a folder of its own",
        ) from error
    except OSError:
        pass  # some network file systems have no locks
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    _locked.append(file)


def new_file(path: Path) -> BinaryIO:
    return path.open("wb")


@contextlib.contextmanager
def written_aside(path: Path, *, durable: bool = True, opened: Opened = new_file) -> Iterator[BinaryIO]:
    """As `write_synced`, for bytes that arrive in pieces: a file to write, renamed to `path` at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _aside(path)
    with _gone_if_failed(temporary, path):
        with opened(temporary) as file:
            yield file
        put_in_place(temporary, path, durable=durable)


@contextlib.contextmanager
def _gone_if_failed(temporary: Path, path: Path) -> Iterator[None]:
    """Remove the temporary file after an error; one of the system names `path` where it names no file."""
    try:
        yield
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise


def put_in_place(temporary: Path, path: Path, *, durable: bool = True) -> None:
    """Sync a finished file and rename it to `path`, in the same folder."""
    if durable:
        sync(temporary)
    temporary.replace(path)
    if durable:
        sync(path.parent)


def link_in_place(path: Path, target: str) -> None:
    """Make `path` a symbolic link to `target`, atomically; `OSError` if links are not supported."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _aside(path)
    temporary.unlink(missing_ok=True)
    with _gone_if_failed(temporary, path):
        temporary.symlink_to(target)
        temporary.replace(path)
    sync(path.parent)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(state: Path) -> None:
    """Remove temporary files of killed processes from a device's state folder.

    Only this program's folders are searched, as the state folder may hold other files.
    """
    own = (
        state / name
        for name in ("blobs", "models", "models/waiting", "epochs", "features", "serving", "rollout")
    )
    for folder in (state, *own, *state.glob("private/*"), *state.glob("serving/*")):
        for path in folder.glob(".*.*[0-9].part"):
            path.unlink(missing_ok=True)


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})  # or a quota, or a limit on files' sizes


RESERVE_BYTES, RESERVE_SHARE = 64 * 1024**2, 0.05  # what stays free; the share is for a small disk


class Space(NamedTuple):
    """Bytes of a disk, and those that are free for this user."""

    total: int
    free: int


def check_free(folder: Path, needed: int) -> None:
    """Raise `PeerError` with `no-space` unless the disk of this folder has room for so many bytes."""
    space = space_of(folder)
    free = max(0, space.free - min(RESERVE_BYTES, int(RESERVE_SHARE * space.total)))
    if needed > free:
        detail = f"{needed / 1e6:.0f} MB are needed on the disk of {folder}, {free / 1e6:.0f} MB are free"
        raise PeerError(f"{detail}: free some", reason=Reason.NO_SPACE)


def space_of(folder: Path) -> Space:
    """The space of the disk that holds a folder; shutil tells it too, and loads what a board never needs."""
    found = os.statvfs(folder)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
