"""Files that only their owner may read, written atomically."""

import os
import stat
from pathlib import Path

from edge_client.storage.atomic_files import put_in_place

OWNER_FILE, OWNER_FOLDER = 0o600, 0o700


def private_folder(path: Path) -> Path:
    """Create a folder and its missing parents with mode 0700."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=OWNER_FOLDER)
    return path


def write_private(path: Path, data: bytes) -> None:
    """Write `data` to `path` atomically; the file has mode 0600 from its creation on."""
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
    return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
