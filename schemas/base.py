"""Base classes of the contract's values: frozen, and strict about unknown fields."""

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_snake


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
