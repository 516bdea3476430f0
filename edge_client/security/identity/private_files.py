"""Files that only their owner may read, whole at any time."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from edge_client.storage.atomic_files import put_in_place

OWNER_FILE, OWNER_FOLDER = 0o600, 0o700


def private_folder(path: Path) -> Path:
    """Make a folder, and those above it that are missing, for the owner alone."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=OWNER_FOLDER)
    return path


def write_private(path: Path, data: bytes) -> None:
    """Put `data` at `path` all at once, 0600 from its first byte on."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_FILE)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        put_in_place(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def is_open_to_others(path: Path) -> bool:
    """Whether anyone but its owner may read a file."""
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
