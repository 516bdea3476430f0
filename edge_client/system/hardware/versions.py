"""Releases of installed packages."""

from collections.abc import Iterable


def release(package: str) -> str | None:
    """The version known to pip; None if not installed. The package is not imported."""
    # Imported late: with what it needs it takes a twentieth of the client's import.
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def releases(packages: Iterable[str]) -> dict[str, str]:
    """The releases of the installed ones of these packages, by name."""
    found = {package: release(package) for package in packages}
    return {package: version for package, version in found.items() if version is not None}
