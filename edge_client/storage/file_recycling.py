"""Files that nobody needs any more, kept to be written over.

A round of a thousand devices makes and removes thousands of files, and file systems take that ill: ext4 looks
past every file that was removed in the last minutes before it makes another one. And a file that is there
has its pages in memory and its blocks on the disk already: a new one takes at least twice as long to write,
ten times on a virtual machine that gives the memory of removed files back to its host.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import signal
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from edge_client.storage.atomic_files import Opened, new_file, unlink

if TYPE_CHECKING:
    from schemas.tensors.arrays import AnyArray

SUFFIX = ".spare"


class Spares:
    """Nameless files in a folder; what lies there at first is removed.

    What is added from another disk, or is to become a file on one, is removed instead.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._added: list[tuple[int, Path]] = []
        self._spare: list[tuple[int, Path]] = []
        self._mark, self._numbers = secrets.token_hex(4), itertools.count()
        for left in folder.glob(f"*{SUFFIX}"):
            unlink(left)

    def add(self, path: Path, *, shared: bool = False) -> None:
        """Take a file, if it is there, for the next turn; of one with a second name only this name goes.

        One that is `shared` others may be reading: those go on reading what they opened.
        """
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            if about.st_nlink > 1:
                unlink(path)
                return
            spare = self._folder / f".{self._mark}.{next(self._numbers)}{SUFFIX}"
            if not _moved(path, spare):
                return
            if shared and _may_be_open(spare):
                unlink(spare)
                return
            with self._lock:
                self._added.append((about.st_size, spare))

    def become(self, path: Path, size: int) -> bool:
        """Put the spare that is nearest to `size` bytes at `path`, if there is one; it holds what it held."""
        with self._lock:
            if not self._spare:
                return False
            at = bisect_left(self._spare, (size,))
            near = [index for index in (at - 1, at) if 0 <= index < len(self._spare)]
            _, spare = self._spare.pop(min(near, key=lambda index: abs(self._spare[index][0] - size)))
        return _moved(spare, path)

    @contextlib.contextmanager
    def written(self, path: Path, size: int) -> Iterator[BinaryIO]:
        """A file to write at `path`, of about `size` bytes; of a spare nothing is left beyond its end."""
        lies_there = self.become(path, size)
        with path.open("r+b" if lies_there else "wb") as file:
            yield file
            file.truncate()

    def turn(self, remove: Callable[[Path], None] = unlink) -> None:
        """From here on what was added is spare; what was spare and was not needed is removed."""
        with self._lock:
            old, self._spare, self._added = self._spare, sorted(self._added), []
        for _, spare in old:
            remove(spare)

    def remove(self) -> None:
        """Remove all of them."""
        self.turn()
        self.turn()


def opened_over(spares: Spares | None, arrays: Mapping[str, AnyArray]) -> Opened:
    """How to open the file that these arrays will be written to: over a spare, or anew without spares."""
    if spares is None:
        return new_file
    # Late: a device imports what tensors need with its first task.
    from schemas.tensors.files import tensor_file_size

    return partial(spares.written, size=tensor_file_size(arrays))


def _moved(path: Path, to: Path) -> bool:
    try:
        path.replace(to)
    except OSError:
        unlink(path)
        return False
    return True


def _may_be_open(path: Path) -> bool:
    """Whether anybody has the file open, or it cannot be told; of one that nobody else knows by this name."""
    try:
        import fcntl

        with path.open("rb") as file:
            # A lease is granted to whoever is alone with a file (fcntl(2), Linux). A signal tells if somebody
            # opens it just then: one that is ignored, for the usual one would end this process.
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (ImportError, AttributeError, OSError):
        return True
    return False
