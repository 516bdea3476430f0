"""Reading files that a server may replace, delete or recycle meanwhile.

Files of a run are written whole and renamed, but a deleted one may be recycled: its bytes are written over
under another name. A second name (a hard link) keeps the bytes, for the server removes such a file instead of
recycling it. The time of the last change shows what was written over nevertheless.
"""

import contextlib
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import BinaryIO, NamedTuple

from schemas.errors import ConfigError

PINS = ".backup-"
"""Prefix of the folder of second names, inside the folder that is backed up; the process's number follows."""


class FileChanged(Exception):
    """A file was written while it was read."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{path} was changed while it was read")
        self.path = path


class Stamp(NamedTuple):
    """What changes when a file is written."""

    size: int
    mtime_ns: int
    inode: int


def stamp(file: BinaryIO) -> Stamp:
    about = os.fstat(file.fileno())
    return Stamp(about.st_size, about.st_mtime_ns, about.st_ino)


class Pins:
    """Second names of files below `folder`; where links are not possible, the files themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / f"{PINS}{os.getpid()}"
        self.count = 0

    def __enter__(self) -> "Pins":
        remove_stale(self._folder.parent)
        with contextlib.suppress(OSError):
            self._folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def pin(self, path: Path) -> Path:
        """The name under which the file stays; raises `FileNotFoundError` if it is gone."""
        self.count += 1
        pinned = self._folder / f"{self.count}{path.suffix}"
        try:
            os.link(path, pinned)
        except OSError:
            path.lstat()
            return path
        return pinned


def remove_stale(folder: Path) -> None:
    """Remove the second names that a killed backup has left."""
    for left in folder.glob(f"{PINS}*"):
        if not is_running(left.name.removeprefix(PINS)):
            shutil.rmtree(left, ignore_errors=True)


def is_running(number: str) -> bool:
    """Whether another process of this number runs."""
    return number != str(os.getpid()) and number.isdigit() and Path("/proc", number).exists()


MAGIC = b"SQLite format 3\0"
PATIENCE_S = 10.0  # Longest wait for another process's transaction
COMPANIONS = ("-wal", "-shm", "-journal")
"""Ends of the names of files that SQLite keeps next to its own; a copy holds their content."""


def is_sqlite(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def copy_sqlite(source: Path, target: Path) -> None:
    """Write a copy in one transaction of the source; raises `ConfigError` for a damaged file."""
    target.unlink(missing_ok=True)
    # An empty source has no pages to write.
    target.touch()
    try:
        with closing(reading(source)) as connection, closing(sqlite3.connect(target)) as copy:
            connection.backup(copy)
    except sqlite3.Error as error:
        raise ConfigError(
            f"cannot be copied: {error}",
            place=source,
            remedy="restore it from an earlier backup, or move it away",
        ) from error


def reading(path: Path) -> sqlite3.Connection:
    """A connection to read with. It may write: the last connection to close removes a write-ahead log.

    A file that this user may not write to is taken as it lies there, unless it has a write-ahead log.
    """
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=rw", uri=True, timeout=PATIENCE_S)
    try:
        connection.execute("PRAGMA schema_version").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "mode=ro&immutable=1"
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=PATIENCE_S)
    return connection
