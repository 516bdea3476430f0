"""Recognising errors of a full or broken disk."""

from __future__ import annotations

import errno
import sqlite3

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
_SQLITE_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_PRIMARY_CODE = 0xFF


def disk_has_failed(error: BaseException | None) -> bool:
    """Whether the disk caused the error, so that a retry may work once it has room."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & _PRIMARY_CODE in _SQLITE_ERRORS
    return isinstance(error, OSError) and error.errno in _ERRORS
