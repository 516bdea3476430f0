"""Which Python packages can be imported here."""

from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

ALSO_NAMED = {"onnxruntime": ("onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-qnn")}
"""Packages that bring the same module in place of the plain one."""


def release(package: str) -> str | None:
    """The version known to pip; None if not installed. The package is not imported."""
    # Imported late: with what it needs it takes a twentieth of the client's import.
    from importlib import metadata

    for name in (package, *ALSO_NAMED.get(package, ())):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def releases(packages: Iterable[str]) -> dict[str, str]:
    """The releases of the installed ones of these packages, by name."""
    found = {package: release(package) for package in packages}
    return {package: version for package, version in found.items() if version is not None}


def is_installed(package: str) -> bool:
    """Whether a top-level package can be found; it is not imported."""
    return _place(package) is not None


def has_file(package: str, name: str) -> bool:
    """Whether a top-level package that can be found has this file; it is not imported."""
    place = _place(package)
    return place is not None and (Path(place).parent / name).is_file()


def _place(package: str) -> str | None:
    """The file that the package begins with, `.` if there is none; None if it cannot be found."""
    try:
        found = find_spec(package)
    except (ImportError, ValueError):
        # An import hook may refuse the package, and a module may have no specification.
        return None
    return None if found is None else found.origin or "."
