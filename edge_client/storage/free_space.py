"""How much of a disk others may fill."""

import os
from pathlib import Path
from typing import NamedTuple

from schemas.errors import PeerError, Reason

RESERVE_BYTES, RESERVE_SHARE = 64 * 1024**2, 0.05  # what stays free; the share is for a small disk


class Space(NamedTuple):
    """Bytes of a disk, and those that are free for this user."""

    total: int
    free: int


def check_free(folder: Path, needed: int) -> None:
    """Raise `PeerError` with `no-space` unless the disk of this folder has room for so many bytes."""
    space = space_of(folder)
    free = max(0, space.free - min(RESERVE_BYTES, int(RESERVE_SHARE * space.total)))
    if needed > free:
        detail = f"{needed / 1e6:.0f} MB are needed on the disk of {folder}, {free / 1e6:.0f} MB are free"
        raise PeerError(f"{detail}: free some", reason=Reason.NO_SPACE)


def space_of(folder: Path) -> Space:
    """The space of the disk that holds a folder; shutil tells it too, and loads what a board never needs."""
    found = os.statvfs(folder)
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
