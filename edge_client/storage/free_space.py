"""How much of a disk others may fill."""

import shutil
from pathlib import Path

from schemas.errors import PeerError
from schemas.values import Reason

RESERVE_BYTES, RESERVE_SHARE = 64 * 1024**2, 0.05
"""What stays free: so many bytes, or this share of a small disk."""


def check_free(folder: Path, needed: int) -> None:
    """Raise `PeerError` with `no-space` unless the disk of this folder has room for so many bytes."""
    usage = shutil.disk_usage(folder)
    free = usage.free - min(RESERVE_BYTES, int(RESERVE_SHARE * usage.total))
    if needed > max(free, 0):
        raise PeerError(
            f"{needed / 1e6:.0f} MB are needed on the disk, {max(free, 0) / 1e6:.0f} MB are free: free some, "
            "or let the server assign a smaller tier",
            reason=Reason.NO_SPACE,
        )
