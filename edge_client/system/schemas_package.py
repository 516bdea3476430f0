"""Ensures that `import schemas` finds the package that ships with this one.

A user's `schemas.py` in PYTHONPATH or in the current folder precedes it in Python's search path. This package
therefore imports its own first, and refuses to work with another.
"""

import os
import sys

NAME = "schemas"
HOME = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 (a quick import)
"""The folder of `edge_client` and `schemas`."""


def claim_schemas() -> None:
    """Import our `schemas`; `ImportError` if another module of that name is already imported."""
    known = sys.modules.get(NAME)
    if known is None:
        sys.path.insert(0, HOME)
        try:
            __import__(NAME)
        finally:
            sys.path.remove(HOME)
        return
    path = getattr(known, "__file__", None)
    if not _is_ours(path):
        raise ImportError(
            f"a module called '{NAME}' is imported already, from {path}, and hides the package '{NAME}' of "
            f"edge-federation in {HOME}: rename that module",
            name=NAME,
            path=path,
        )


def hidden_by_ours(error: BaseException) -> str:
    """The remedy if the user's code fails because it needs its own `schemas`; otherwise empty."""
    if isinstance(error, ImportError):
        wanted = (error.name or "").partition(".")[0] == NAME
    else:
        wanted = isinstance(error, AttributeError) and error.obj is sys.modules.get(NAME)
    path = _foreign() if wanted else None
    return f"; {path} is hidden by the package '{NAME}' of edge-federation: rename it" if path else ""


def _foreign() -> str | None:
    """The first other module of that name in Python's search path."""
    for folder in sys.path:
        for name in (os.path.join(NAME, "__init__.py"), f"{NAME}.py"):  # noqa: PTH118
            path = os.path.join(os.path.abspath(folder), name)  # noqa: PTH100, PTH118
            if os.path.isfile(path) and not _is_ours(path):  # noqa: PTH113
                return path
    return None


def _is_ours(path: str | None) -> bool:
    ours = os.path.join(HOME, NAME, "__init__.py")  # noqa: PTH118
    return path is not None and os.path.realpath(path) == os.path.realpath(ours)
