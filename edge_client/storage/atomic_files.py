"""Files that are whole at any time: written aside, synced, renamed."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import BinaryIO

from schemas.errors import ConfigError

Opened = Callable[[Path], AbstractContextManager[BinaryIO]]
"""How a file to write is opened."""

SYNCS_AT_ONCE = 8
"""File systems write down what several wait for in one go."""


def write_synced(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Put `data` at `path` all at once: a reader sees the old file or the new one, after a power cut too.

    Not `durable` spares the wait for the disk: a power cut may then lose the file, but nothing else can.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _aside(path)
    with _gone_if_failed(temporary):
        temporary.write_bytes(data)
        put_in_place(temporary, path, durable=durable)


def usable_folder(path: Path, *, option: str) -> Path:
    """The folder that `option` names, made where it is missing; raises `ConfigError` where that cannot be."""
    remedy = "name a folder that this user may write to"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"{option} {path}: the folder cannot be made: {error.strerror}; {remedy}"
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"{option} {path}: the folder cannot be written to; {remedy}")
    return path


def new_file(path: Path) -> BinaryIO:
    """A file to write, empty."""
    return path.open("wb")


@contextlib.contextmanager
def written_aside(path: Path, *, durable: bool = True, opened: Opened = new_file) -> Iterator[BinaryIO]:
    """As `write_synced`, for bytes that come a piece at a time: a file to write, put at `path` at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _aside(path)
    with _gone_if_failed(temporary):
        with opened(temporary) as file:
            yield file
        put_in_place(temporary, path, durable=durable)


@contextlib.contextmanager
def _gone_if_failed(temporary: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def put_in_place(temporary: Path, path: Path, *, durable: bool = True) -> None:
    """Rename a finished file to `path`, in the same folder, once its bytes are on disk."""
    if durable:
        sync(temporary)
    temporary.replace(path)
    if durable:
        sync(path.parent)


def link_in_place(path: Path, target: str) -> None:
    """Let `path` be a symbolic link to `target`, all at once; raises `OSError` where there are no links."""
    if path.is_symlink() and str(path.readlink()) == target:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = _aside(path)
    temporary.unlink(missing_ok=True)
    with _gone_if_failed(temporary):
        temporary.symlink_to(target)
        temporary.replace(path)
    sync(path.parent)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def unlink(path: Path) -> None:
    """Remove a file, if it is there."""
    path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Wait until a file, or a folder's list of names, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(state: Path) -> None:
    """Remove what writes that were killed have left in a device's state folder.

    Only where this program writes: the folder may be one that holds other things.
    """
    own = (state / name for name in ("blobs", "models", "models/waiting", "epochs", "serving", "rollout"))
    for folder in (state, *own, *state.glob("private/*"), *state.glob("serving/*")):
        for path in folder.glob(".*.*[0-9].part"):
            path.unlink(missing_ok=True)


DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No room at all, or none that this user may have."""
