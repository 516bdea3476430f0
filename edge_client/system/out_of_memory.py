"""Too little memory: how it shows, and what is said of it."""

from __future__ import annotations

SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "could not create a memory object",
)
"""What torch, oneDNN and the C++ library say, as plain `RuntimeError`s, where no memory was to be had."""


def is_shortage(error: BaseException) -> bool:
    """Whether the error says that there was no memory."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error).lower() for sign in SIGNS)
