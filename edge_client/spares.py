"""Files that nobody needs any more, kept to be written over.

A round of a thousand devices makes and removes thousands of files, and file systems take that ill: ext4 looks
past every file that was removed in the last minutes before it makes another one.
"""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
from bisect import bisect_left
from collections.abc import Callable
from pathlib import Path

from edge_client.files import unlink

SUFFIX = ".spare"


class Spares:
    """Nameless files in a folder, on one disk with all that is added; what lies there at first is removed."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, threading.Lock()
        self._added: list[tuple[int, Path]] = []
        self._spare: list[tuple[int, Path]] = []
        self._mark, self._numbers = secrets.token_hex(4), itertools.count()
        for left in folder.glob(f"*{SUFFIX}"):
            unlink(left)

    def add(self, path: Path) -> None:
        """Take a file, if it is there, for the next turn; of one with a second name only this name goes."""
        with contextlib.suppress(FileNotFoundError):
            about = path.stat()
            if about.st_nlink > 1:
                unlink(path)
                return
            spare = self._folder / f".{self._mark}.{next(self._numbers)}{SUFFIX}"
            path.replace(spare)
            with self._lock:
                self._added.append((about.st_size, spare))

    def become(self, path: Path, size: int) -> bool:
        """Put the spare that is nearest to `size` bytes at `path`, if there is one; it holds what it held."""
        with self._lock:
            if not self._spare:
                return False
            at = min(bisect_left(self._spare, (size,)), len(self._spare) - 1)
            _, spare = self._spare.pop(at)
        with contextlib.suppress(FileNotFoundError):
            spare.replace(path)
            return True
        return False

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
