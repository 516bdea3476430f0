"""Removes the run folders of old runs, in another thread: a folder may hold thousands of files."""

import contextlib
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path

GONE = ".gone-"
"""Begin of the name of a folder that is about to be deleted."""


def remove_run_folders(runs: Path, names: Iterable[str]) -> threading.Thread:
    """Remove the folders of these runs, and what an earlier service has not removed to the end."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            (runs / name).rename(runs / f"{GONE}{name}")
    thread = threading.Thread(target=_delete, args=(runs,), name="old runs", daemon=True)
    thread.start()
    return thread


def _delete(runs: Path) -> None:
    for folder in runs.glob(f"{GONE}*"):
        shutil.rmtree(folder, ignore_errors=True)
