"""Detects errors that mean a lack of memory."""

SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "could not create a memory object",
)
"""Texts of plain `RuntimeError`s by which torch, oneDNN and the C++ library report a lack of memory."""


def is_shortage(error: BaseException) -> bool:
    """Whether the error reports a lack of memory."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and any(sign in str(error).lower() for sign in SIGNS)
