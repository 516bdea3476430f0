"""What a disk that is full, or broken, looks like."""

from __future__ import annotations

import errno
import sqlite3

_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO})
_SQLITE_ERRORS = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY})
_PRIMARY_CODE = 0xFF


def disk_has_failed(error: BaseException | None) -> bool:
    """Whether the disk is why something failed: then the same may work once there is room again."""
    if isinstance(error, sqlite3.OperationalError):
        return error.sqlite_errorcode & _PRIMARY_CODE in _SQLITE_ERRORS
    return isinstance(error, OSError) and error.errno in _ERRORS
