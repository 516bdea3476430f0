"""Which Python packages can be imported here."""

from importlib.util import find_spec


def is_installed(package: str) -> bool:
    """Whether a top-level package can be found; it is not imported."""
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):
        # An import hook may refuse the package, and a module may have no specification.
        return False
