"""Space on the disk of the state folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Storage:
    """In bytes; `free` is what this user may use."""

    free: int
    total: int


def storage(folder: Path) -> Storage | None:
    """The disk of a folder that exists or will be created."""
    for place in (folder, *folder.absolute().parents):
        try:
            usage = shutil.disk_usage(place)
        except OSError:
            continue
        return Storage(usage.free, usage.total)
    return None
