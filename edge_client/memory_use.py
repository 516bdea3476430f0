"""How much memory this process holds, and giving back what it no longer needs."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import resource
import sys
from pathlib import Path

_M_ARENA_MAX = -8
"""Its number in glibc's malloc.h."""


def resident_bytes() -> int:
    """Memory that this process holds now (Linux), or at most held so far (elsewhere)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


def share_one_arena() -> None:
    """Let all threads take memory from one place (glibc; elsewhere nothing); call before there are others.

    Each thread would get a place of its own, and what is left over in each stays with the process: 3 MB of a
    service that answers 16 connections.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def give_back() -> None:
    """Return freed memory to the system, where the C library would keep it (glibc); elsewhere nothing.

    Loading a network takes several times its size for a moment, and importing libraries leaves cycles behind.
    """
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
