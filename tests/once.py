"""Slow fixtures are computed once, by the first pytest process that needs them."""

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

PATIENCE_S = 200


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` filled, in this process or another one; tests must not change it."""
    base = temporary.getbasetemp()
    # pytest-xdist gives each process a folder within a shared one.
    shared = base.parent if base.name.startswith("popen-") else base
    folder = shared / f"once-{name}"
    with FileLock(shared / f"once-{name}.lock", timeout=PATIENCE_S):
        if not (folder / "made").exists():
            folder.mkdir()
            make(folder)
            (folder / "made").touch()
    return folder
