"""Waiting until files are on disk, and recognising errors of a full or broken disk."""

import errno
import resource
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from edge_client.storage.atomic_files import SYNCS_AT_ONCE, sync
from schemas.errors import EdgeError

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
_SQLITE_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_PRIMARY_CODE = 0xFF


def disk_has_failed(error: BaseException | None) -> bool:
    """Whether the disk caused the error, so that a retry may work once it has room."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & _PRIMARY_CODE in _SQLITE_ERRORS
    return isinstance(error, OSError) and error.errno in _ERRORS


def in_words(error: BaseException) -> str:
    limit, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if limit != resource.RLIM_INFINITY and getattr(error, "errno", errno.EFBIG) == errno.EFBIG:
        remedy = f"files may have {limit / 1e6:.4g} MB here: raise `ulimit -f` or systemd's LimitFSIZE="
    else:
        remedy = "make room, or check the disk and its permissions"
    return f"{error}: {remedy}"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Name the file in errors of SQLite, which do not say whose they are."""
    try:
        yield
    except sqlite3.OperationalError as error:
        error.args = (f"{path}: {error}",)
        raise


@contextmanager
def told_in_words(where: Path) -> Iterator[None]:
    """Turn an error of the disk below the folder `where` into an `EdgeError` with its remedy."""
    try:
        yield
    except Exception as error:
        if disk_has_failed(error):
            raise EdgeError(f"{where}: the disk is full or failing: {in_words(error)}") from error
        raise


def wait_for_disk(files: Iterable[Path]) -> None:
    """Wait until the files, and then their names, are on disk; raises `OSError` if the disk is full.

    Nothing may refer to the files before this returns.
    """
    written = list(files)
    folders = {folder for path in written for folder in (path.parent, path.parent.parent)}
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
        list(pool.map(sync, written))
        list(pool.map(sync, folders))
