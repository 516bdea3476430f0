"""The memory that this process holds, how its allocator keeps freed memory, and returning what is not needed.

By default glibc gives each thread its own heap, maps large blocks separately, and returns freed memory to the
system soon; the next chunk, increment or batch then gets pages that the kernel must clear again. A device
does one thing at a time, so one heap suffices for its threads. Ten devices that train `two-nn` (600 images,
batch 32) used 10.8 instead of 11.8 seconds of processor time per round, 0.3 instead of 0.8 of them in the
kernel, and 308 instead of 315 MB each at their peak.

A training step of a larger network frees hundreds of megabytes that the next step needs. Memory is therefore
returned only after the device has been idle for a while (`GivingBack`); the benchmark `allocator` measures
the effect. Large blocks are still mapped separately: in a common heap they would fragment it, and a training
that needs most of the memory (`microbatch`) would fail. A simulation's workers do the same for their whole
life.

A device without torch trains in onnxruntime's arena (`training/step_graphs/running/arena.py`), and its steps
take no memory from the heap. It therefore returns large blocks, which are weights and messages, at once: tier
1 of `two-nn` peaked at 112 instead of 116 to 120 MB when this was introduced.

Numbers and names are those of glibc's `malloc.h`; mallopt(3) explains each.
"""

import contextlib
import ctypes
import gc
import math
import os
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8
HEAPS = 1
MAPPED_BYTES = 32 * 1024 * 1024  # from here on blocks are mapped separately; glibc's maximum
LARGE_BYTES = 200_000  # blocks from this size on are returned at once on a device without torch
NEVER = -1  # never trim the heap, however much is free at its end
ALSO_SET_BY = ("MALLOC_", "GLIBC_TUNABLES")  # prefixes of the variables by which a user sets the same

KEPT_S = 10.0  # idle seconds before memory is returned; rounds that follow sooner reuse it
NEW_OBJECTS = 20_000  # after which a busy process looks for garbage among them; Python's default is 700
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


def keep_freed_memory(environment: Mapping[str, str] = os.environ) -> bool:
    """Configure the allocator before the process starts a second thread; returns whether it was changed.

    Another C library, or settings of the user, stay unchanged.
    """
    wanted = {M_ARENA_MAX: HEAPS, M_MMAP_THRESHOLD: MAPPED_BYTES, M_TRIM_THRESHOLD: NEVER}
    return _set_up(wanted, environment)


def return_large_blocks(environment: Mapping[str, str] = os.environ) -> bool:
    """Return freed blocks of `LARGE_BYTES` at once; otherwise as `keep_freed_memory`."""
    wanted = {M_ARENA_MAX: HEAPS, M_MMAP_THRESHOLD: LARGE_BYTES, M_TRIM_THRESHOLD: LARGE_BYTES}
    return _set_up(wanted, environment)


def share_one_heap(environment: Mapping[str, str] = os.environ) -> bool:
    """Use one heap for all threads, which still returns memory; otherwise as `keep_freed_memory`.

    Otherwise each thread keeps its rest: 3 MB in a service with 16 connections.
    """
    return _set_up({M_ARENA_MAX: HEAPS}, environment)


def _set_up(wanted: Mapping[int, int], environment: Mapping[str, str]) -> bool:
    if sys.platform != "linux" or any(name.startswith(ALSO_SET_BY) for name in environment):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    taken = [mallopt(option, value) == 1 for option, value in wanted.items()]
    return all(taken)


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


def is_shortage(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    own, text = type(error).__module__.startswith(OWN_CLASSES), str(error).lower()
    return (own or isinstance(error, RuntimeError | OSError)) and any(sign in text for sign in SIGNS)
