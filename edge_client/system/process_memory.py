"""How much memory this process holds, and giving back what it no longer needs."""

from __future__ import annotations

import contextlib
import gc
import math
import resource
import sys
from pathlib import Path

KEPT_S = 10.0
"""Rounds that follow each other sooner find what the last one has left."""


def resident_bytes() -> int:
    """Memory that this process holds now (Linux), or at most held so far (elsewhere)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


def give_back() -> None:
    """Return freed memory to the system, where the C library would keep it (glibc); elsewhere nothing.

    Loading a network takes several times its size for a moment, and importing libraries leaves cycles behind.
    """
    # Late: a device has time for it once it is idle, not when it starts.
    import ctypes

    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


class GivingBack:
    """Gives freed memory back once a process that was `busy` has not been for `KEPT_S`; once each time."""

    def __init__(self) -> None:
        self._due = math.inf

    def turn(self, now: float, *, busy: bool) -> None:
        """Look at the clock, in seconds."""
        if busy:
            self._due = now + KEPT_S
        elif now >= self._due:
            self._due = math.inf
            give_back()
