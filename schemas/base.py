"""The base of every value in the contract: frozen, and strict about unknown fields."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_snake


class Frozen(BaseModel):
    """A value: unknown fields are refused, non-finite numbers too, and nothing changes after it is made.

    A class is described to pydantic when its first value is made. Fields whose defaults are values have them
    from `model_construct`, so that this is not at import.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def kebab(name: str) -> str:
    """`local_epochs` as it is written in TOML: `local-epochs`."""
    return to_snake(name).replace("_", "-")


class Settings(Frozen):
    """A value that users also write in TOML: kebab-case keys there, snake_case on the wire and in Python."""

    model_config = ConfigDict(alias_generator=kebab, populate_by_name=True)
