"""Waiting for the disk once for many files: a file system writes down what several wait for in one go."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edge_client.files import sync

AT_ONCE = 8


def wait_for_disk(files: Iterable[Path]) -> None:
    """Wait until the files are on disk, and then their names; raises `OSError` where the disk takes no more.

    For files that nothing names yet: whoever is to find one whole must be told of it only afterwards.
    """
    written = list(files)
    folders = {folder for path in written for folder in (path.parent, path.parent.parent)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(sync, written))
        list(pool.map(sync, folders))
