"""Room on the disk that holds the state folder."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Storage:
    """In bytes; `free` is what this user may have."""

    free: int
    total: int


def storage(folder: Path) -> Storage | None:
    """Of the disk that holds the folder, or will once it is made."""
    for place in (folder, *folder.absolute().parents):
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            continue
        return Storage(usage.free, usage.total)
    return None
