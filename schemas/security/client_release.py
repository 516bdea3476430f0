"""A release of the client: the wheels of one archive, and the boards that they fit.

A board's fit is written `cp311-aarch64`: the version of its Python and its processor.
"""

import platform
import re
import struct
import sys
from collections.abc import Iterable
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, StringConstraints

from schemas.base import Digest, Frozen
from schemas.values import Bytes

ANY = "any"
OLDEST_MINOR, NEWEST_MINOR = 11, 16  # the minor versions of Python 3 for which fits are listed
_LINUX = re.compile(r"(?:many|musl)?linux[0-9_]*?_(?P<machine>x86_64|[a-z][a-z0-9]*)\Z")
_WHEEL = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._]*)-(?P<version>[A-Za-z0-9._+!]+)(?:-[0-9][A-Za-z0-9._]*)?"
    r"-(?P<python>[a-z0-9_.]+)-(?P<abi>[a-z0-9_.]+)-(?P<platform>[A-Za-z0-9_.]+)\.whl\Z"
)

Fit = Annotated[str, StringConstraints(pattern=r"^(any|cp3[0-9]{1,2}-[a-z0-9_]{1,32})$")]
PythonBound = Annotated[str, StringConstraints(pattern=r"^(>=3\.[0-9]{1,2})?$")]
WheelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+!-]{0,198}\.whl$")]
Word = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,39}$")]
PackageVersion = Annotated[str, StringConstraints(pattern=r"^[0-9][A-Za-z0-9.+!]{0,62}$")]


class WheelFile(Frozen):
    """One wheel of a release."""

    name: WheelName
    sha256: Digest
    bytes: Bytes


class ClientRelease(Frozen):
    """`release.json`, the first file of a release's archive.

    The board installs `package` in exactly this `version`, with these `extras`, from these wheels alone.
    `python` is the package's lower bound, `installed_bytes` the size of the unpacked wheels.
    """

    format: Literal[1] = 1
    package: Word = "edge-federation"
    version: PackageVersion
    extras: Annotated[tuple[Word, ...], Field(max_length=16)] = ()
    python: PythonBound = ""
    fits: Annotated[tuple[Fit, ...], Field(min_length=1, max_length=64)]
    installed_bytes: Bytes
    wheels: Annotated[tuple[WheelFile, ...], Field(min_length=1, max_length=1000)]

    @property
    def requirement(self) -> str:
        """What is installed, as pip writes it."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.package}{extras}=={self.version}"


class WheelTags(NamedTuple):
    """A wheel's package and version, and the tags of what it fits."""

    package: str
    version: str
    pythons: tuple[str, ...]
    abis: tuple[str, ...]
    platforms: tuple[str, ...]

    def fits(self, minor: int, machine: str) -> bool:
        """Whether it may be installed with Python 3.`minor` on this processor."""
        return any(self._fits_python(tag, minor) for tag in self.pythons) and any(
            tag == ANY or machine_of(tag) == machine for tag in self.platforms
        )

    def _fits_python(self, tag: str, minor: int) -> bool:
        if tag == "py3":
            return True
        digits = tag[3:]
        if tag[:3] not in ("py3", "cp3") or not digits.isdecimal():
            return False
        return int(digits) == minor or (int(digits) < minor and (tag[0] == "p" or "abi3" in self.abis))


def package_name(text: str) -> str:
    """The name of a package as indexes compare it."""
    return re.sub(r"[-_.]+", "-", text).lower()


def wheel_tags(name: str) -> WheelTags | None:
    """The tags in the file name of a wheel; None if it is not that of a wheel."""
    found = _WHEEL.match(name)
    if found is None:
        return None
    package = package_name(found["name"])
    pythons, abis, platforms = (tuple(found[part].split(".")) for part in ("python", "abi", "platform"))
    return WheelTags(package, found["version"], pythons, abis, platforms)


def machine_of(platform_tag: str) -> str | None:
    """The processor in a tag of Linux, such as `manylinux_2_28_aarch64`; None for other systems."""
    found = _LINUX.match(platform_tag)
    return None if found is None else found["machine"]


def fits_of(names: Iterable[str]) -> tuple[str, ...]:
    """The boards for which every package has a wheel among these files; `any` if none has a binary one."""
    wheels = [tags for name in names if (tags := wheel_tags(name)) is not None]
    if all(tags.platforms == (ANY,) and set(tags.pythons) & {"py3"} for tags in wheels):
        return (ANY,)
    platforms = {machine_of(tag) for tags in wheels for tag in tags.platforms}
    packages = {tags.package: [other for other in wheels if other.package == tags.package] for tags in wheels}
    return tuple(
        f"cp3{minor}-{machine}"
        for machine in sorted(filter(None, platforms))
        for minor in range(OLDEST_MINOR, NEWEST_MINOR + 1)
        if all(any(tags.fits(minor, machine) for tags in choice) for choice in packages.values())
    )


def board_fit() -> str:
    machine = platform.machine().lower()
    if struct.calcsize("P") == 4:
        # A 32-bit system on a 64-bit kernel.
        machine = {"aarch64": "armv7l", "x86_64": "i686"}.get(machine, machine)
    return f"cp3{sys.version_info.minor}-{machine}"


def misfit(fits: Iterable[str], python: str, board: str) -> str:
    """Why a release does not fit a board, in words; empty if it does."""
    known = tuple(fits)
    minor = int(board.partition("-")[0][3:])
    if python and minor < int(python.rpartition(".")[2]):
        return f"it needs Python {python}, this board has 3.{minor}"
    if known and ANY not in known and board not in known:
        return f"it has no wheels for {board}, only for {', '.join(known)}"
    return ""
