"""Files that nobody needs any more: out of the way at once, removed beside whatever is done next.

To remove a large file may take the disk milliseconds, and after a round there are as many as devices.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


class Disposal:
    """A folder that files are moved to, by any name, and removed from; on the disk that they lie on."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._numbers = folder, itertools.count()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disposal")
        # What an earlier process has not come to.
        shutil.rmtree(folder, ignore_errors=True)

    def take(self, path: Path) -> None:
        """The file is gone when this returns; one that is not there needs nothing."""
        self._folder.mkdir(exist_ok=True)
        gone = self._folder / str(next(self._numbers))
        with contextlib.suppress(FileNotFoundError):
            path.replace(gone)
            self._pool.submit(os.unlink, gone)

    def close(self) -> None:
        """Remove all that is left."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        shutil.rmtree(self._folder, ignore_errors=True)
