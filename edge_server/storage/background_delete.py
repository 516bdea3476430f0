"""Deleting files in another thread: a large file may take milliseconds, and a round leaves one per device."""

import contextlib
import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class BackgroundDelete:
    """A folder on the same disk, to which files are moved before they are deleted."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disposal")
        # Files that an earlier process has not deleted.
        shutil.rmtree(folder, ignore_errors=True)

    def take(self, path: Path) -> None:
        """Move the file away, to be deleted later; a missing file is ignored."""
        self._folder.mkdir(exist_ok=True)
        gone = self._folder / str(next(self._numbers))
        with contextlib.suppress(FileNotFoundError):
            path.replace(gone)
            self._pool.submit(os.unlink, gone)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)
