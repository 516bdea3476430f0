"""Detects errors that mean a lack of memory."""

SIGNS = (
    "can't allocate memory",
    "not enough memory",
    "out of memory",
    "cannot allocate memory",
    "std::bad_alloc",
    "could not create a memory object",
    "is smaller than requested bytes",
)
"""Texts by which torch, oneDNN, the C++ library and onnxruntime report a lack of memory."""
OWN_CLASSES = "onnxruntime."
"""The package whose errors derive from `Exception` alone."""


def is_shortage(error: BaseException) -> bool:
    """Whether the error reports a lack of memory."""
    if isinstance(error, MemoryError):
        return True
    own = type(error).__module__.startswith(OWN_CLASSES)
    return (own or isinstance(error, RuntimeError | OSError)) and any(
        sign in str(error).lower() for sign in SIGNS
    )
