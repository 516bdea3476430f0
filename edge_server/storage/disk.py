"""Waiting until files are on disk, and recognising errors of a full or broken disk."""

import errno
import sqlite3
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edge_client.storage.atomic_files import SYNCS_AT_ONCE, sync

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
_SQLITE_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_PRIMARY_CODE = 0xFF


def disk_has_failed(error: BaseException | None) -> bool:
    """Whether the disk caused the error, so that a retry may work once it has room."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & _PRIMARY_CODE in _SQLITE_ERRORS
    return isinstance(error, OSError) and error.errno in _ERRORS


def wait_for_disk(files: Iterable[Path]) -> None:
    """Wait until the files, and then their names, are on disk; raises `OSError` if the disk is full.

    Nothing may refer to the files before this returns.
    """
    written = list(files)
    folders = {folder for path in written for folder in (path.parent, path.parent.parent)}
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
        list(pool.map(sync, written))
        list(pool.map(sync, folders))
