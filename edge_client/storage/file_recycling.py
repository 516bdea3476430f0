"""Files that are no longer needed are kept and overwritten, instead of removed and created.

A round of a thousand devices creates and removes thousands of files. ext4 skips every recently removed inode
before it creates a file. An existing file also has its pages in memory and its blocks on disk: writing a new
file takes at least twice as long, and ten times on a virtual machine that returns the memory of removed files
to its host.
"""

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
    """Recyclable files without names in a folder, whose initial content is removed.

    A file from another disk, or for one, is removed instead of recycled.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._added: list[tuple[int, Path]] = []
        self._spare: list[tuple[int, Path]] = []
        self._mark, self._numbers = secrets.token_hex(4), itertools.count()
        for left in folder.glob(f"*{SUFFIX}"):
            unlink(left)

    def add(self, path: Path, *, shared: bool = False) -> None:
        """Add a file, if it exists, for the next turn; of a file with a second name only this name is
        removed.

        Other processes may have a `shared` file open; it is removed only for new readers.
        """
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            if about.st_nlink > 1:
                unlink(path)
                return
            spare = self._folder / f".{self._mark}.{next(self._numbers)}{SUFFIX}"
            if not _move_file(path, spare):
                return
            if shared and _may_be_open(spare):
                unlink(spare)
                return
            with self._lock:
                self._added.append((about.st_size, spare))

    def become(self, path: Path, size: int) -> bool:
        """Rename the file that is nearest to `size` bytes to `path`, if there is one; its content stays."""
        with self._lock:
            if not self._spare:
                return False
            at = bisect_left(self._spare, (size,))
            near = [index for index in (at - 1, at) if 0 <= index < len(self._spare)]
            _, spare = self._spare.pop(min(near, key=lambda index: abs(self._spare[index][0] - size)))
        return _move_file(spare, path)

    @contextlib.contextmanager
    def written(self, path: Path, size: int) -> Iterator[BinaryIO]:
        """Open a file for writing at `path`, of about `size` bytes; a recycled file is cut at its end."""
        lies_there = self.become(path, size)
        with path.open("r+b" if lies_there else "wb") as file:
            yield file
            file.truncate()

    def turn(self, remove: Callable[[Path], None] = unlink) -> None:
        """Make the added files usable; files that were usable and not needed are removed."""
        with self._lock:
            old, self._spare, self._added = self._spare, sorted(self._added), []
        for _, spare in old:
            remove(spare)

    def remove(self) -> None:
        self.turn()
        self.turn()


def opened_over(spares: Spares | None, arrays: "Mapping[str, AnyArray]") -> Opened:
    """How to open the file for these arrays: over a recycled file, or a new one without `spares`."""
    if spares is None:
        return new_file
    # Late: a device imports what tensors need with its first task.
    from schemas.tensors.files import tensor_file_size

    return partial(spares.written, size=tensor_file_size(arrays))


def _move_file(path: Path, to: Path) -> bool:
    try:
        path.replace(to)
    except OSError:
        unlink(path)
        return False
    return True


def _may_be_open(path: Path) -> bool:
    """Whether another process may have this single-named file open."""
    try:
        import fcntl

        with path.open("rb") as file:
            # The kernel grants a lease to the only user of a file (fcntl(2), Linux), and signals if another
            # process opens the file just then: the default signal would end this process, SIGURG is ignored.
            fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except (ImportError, AttributeError, OSError):
        return True
    return False
