"""What is long in the making is made once, whichever of pytest's processes asks first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

PATIENCE_S = 200


def made_once(temporary: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder that `make` has filled, in this process or in another one; nobody may change it."""
    base = temporary.getbasetemp()
    # With several processes each has a folder of its own in one that they share.
    shared = base.parent if base.name.startswith("popen-") else base
    folder = shared / f"once-{name}"
    with FileLock(shared / f"once-{name}.lock", timeout=PATIENCE_S):
        if not (folder / "made").exists():
            folder.mkdir()
            make(folder)
            (folder / "made").touch()
    return folder
