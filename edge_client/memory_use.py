"""How much memory this process holds, and giving back what it no longer needs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from pathlib import Path


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
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
