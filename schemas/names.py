"""Names used in topics and file paths, with an alphabet that is safe in both."""

import re
from collections.abc import Collection
from typing import Annotated

from pydantic import StringConstraints

from schemas.errors import ConfigError

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_NAME = re.compile(NAME_PATTERN)

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A federation or a device: 1 to 64 letters, digits, dots, dashes and underscores."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]  # a sha256 in lower-case hex


def is_name(text: str) -> bool:
    """Whether `text` is a valid name of a federation or a device."""
    return _NAME.fullmatch(text) is not None


def check_names(**stated: str) -> None:
    """Raise `ConfigError` for the value of an option, such as `device_id`, that is not a name."""
    for option, name in stated.items():
        if not is_name(name):
            option = option.replace("_", "-")
            raise ConfigError(f"--{option} '{name}': 1 to 64 letters, digits, dots, dashes, underscores")


def is_of_site(device: str, site: str) -> bool:
    """Whether the name is that of a device, or of another site, of this site: `barn.pi-1` of `barn`."""
    return device.startswith(f"{site}.")


def site_of(device: str, sites: Collection[str]) -> str:
    """The first of these sites on the way to a device, `north` for `north.barn.pi-1`; empty without one."""
    dots = (at for at, letter in enumerate(device) if letter == "." and at + 1 < len(device))
    return next((device[:at] for at in dots if device[:at] in sites), "")
