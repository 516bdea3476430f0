"""Base classes of the contract's values, frozen and strict about unknown fields; names and labels in them.

Names stand in topics and file paths, with an alphabet that is safe in both.
"""

import re
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_snake

from schemas.errors import ConfigError
from schemas.selectors import KEY_PATTERN, MAX_LABELS, VALUE_PATTERN

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_NAME = re.compile(NAME_PATTERN)

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
"""A federation or a device: 1 to 64 letters, digits, dots, dashes and underscores."""

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]  # a sha256 in lower-case hex

LabelKey = Annotated[str, StringConstraints(pattern=KEY_PATTERN)]
LabelValue = Annotated[str, StringConstraints(pattern=VALUE_PATTERN)]
Labels = Annotated[Mapping[LabelKey, LabelValue], Field(max_length=MAX_LABELS)]
"""At most 16 labels, such as `{"site": "barn", "role": "camera"}`."""


class Frozen(BaseModel):
    """An immutable value that refuses unknown fields and non-finite numbers.

    Pydantic builds a class's validator when its first value is made, not at import. Defaults that are values
    are therefore made with `model_construct`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def kebab(name: str) -> str:
    """The TOML spelling of a field name: `local_epochs` becomes `local-epochs`."""
    return to_snake(name).replace("_", "-")


class Settings(Frozen):
    """A value that users also write in TOML: kebab-case keys there, snake_case on the wire and in Python."""

    model_config = ConfigDict(alias_generator=kebab, populate_by_name=True)

    @model_validator(mode="after")
    def _checked(self) -> Self:
        try:
            self._check()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def _check(self) -> None:
        """Raise `ValueError` or `ConfigError` for values that do not fit together."""


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """Fields of a value under their own names, for a document or another value that has them too."""
    return {name: getattr(value, name) for name in names}


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
