"""Waiting for the disk once for many files."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from edge_client.storage.atomic_files import SYNCS_AT_ONCE, sync


def wait_for_disk(files: Iterable[Path]) -> None:
    """Wait until the files are on disk, and then their names; raises `OSError` where the disk takes no more.

    For files that nothing names yet: whoever is to find one whole must be told of it only afterwards.
    """
    written = list(files)
    folders = {folder for path in written for folder in (path.parent, path.parent.parent)}
    with ThreadPoolExecutor(SYNCS_AT_ONCE) as pool:
        list(pool.map(sync, written))
        list(pool.map(sync, folders))
