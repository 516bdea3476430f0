"""Waiting once until many files are on disk."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edge_client.storage.atomic_files import SYNCS_AT_ONCE, sync


def wait_for_disk(files: Iterable[Path]) -> None:
    """Wait until the files, and then their names, are on disk; raises `OSError` if the disk is full.

    Nothing may refer to the files before this returns.
    """
    written = list(files)
    folders = {folder for path in written for folder in (path.parent, path.parent.parent)}
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
        list(pool.map(sync, written))
        list(pool.map(sync, folders))
