"""The memory that this process holds, and returning memory that it no longer needs."""

import contextlib
import gc
import math
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

KEPT_S = 10.0  # idle seconds before memory is returned; rounds that follow sooner reuse it
NEW_OBJECTS = 20_000  # after which a busy process looks for garbage among them; Python's default is 700


def resident_bytes() -> int:
    """Resident bytes of this process (Linux), or their maximum so far (other systems)."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    return pages * resource.getpagesize()


def give_back() -> None:
    """Return freed memory that the C library would keep (glibc only), after garbage collection.

    Loading a network briefly takes several times its size, and imports leave reference cycles.
    """
    gc.collect()
    trim_heap()


def trim_heap() -> None:
    """Return freed memory that the C library would keep (glibc only).

    A garbage collection takes 0.2 s in a process that has imported torch and its exporter.
    """
    # Late: a device has time for it once it is idle, not when it starts.
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


@contextlib.contextmanager
def lasting_objects() -> Iterator[None]:
    """Garbage collections within do not look through what exists now, and are rare.

    With torch imported a full one takes a tenth of a second; all of them took a seventh of a busy server's
    processor time.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


class GivingBack:
    """Returns freed memory once, when a process that was `busy` has been idle for `KEPT_S` seconds."""

    def __init__(self) -> None:
        self._due = math.inf

    def turn(self, now: float, *, busy: bool) -> None:
        if busy:
            self._due = now + KEPT_S
        elif now >= self._due:
            self._due = math.inf
            give_back()


# Texts by which torch, oneDNN, the C++ library and onnxruntime report a lack of memory.
SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "could not create a memory object",
    "is smaller than requested bytes",
)
OWN_CLASSES = "onnxruntime."  # the package whose errors derive from `Exception` alone


def is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    own, text = type(error).__module__.startswith(OWN_CLASSES), str(error).lower()
    return (own or isinstance(error, RuntimeError | OSError)) and any(sign in text for sign in SIGNS)
