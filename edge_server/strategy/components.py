"""Make a strategy's components from the names and options in a recipe."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from schemas.base import kebab
from schemas.errors import ConfigError, nearest
from schemas.strategy import Component

T = TypeVar("T")


def make_component(
    concept: str, registry: Mapping[str, Callable[..., T]], piece: Component, **provided: object
) -> T:
    """Call the registered factory of `piece`; raises `ConfigError` with the nearest names.

    `provided` are arguments that the run itself has for any factory that wants them; no option names one.
    """
    factory = registry.get(piece.name)
    if factory is None:
        raise ConfigError(f"unknown {concept} '{piece.name}'{nearest(piece.name, registry)}")
    parameters = inspect.signature(factory).parameters
    allowed = set(parameters) - set(provided)
    options = {
        name: _checked(f"{concept} '{piece.name}'", factory, name, value, allowed)
        for name, value in piece.options.items()
    }
    wanted = {name: value for name, value in provided.items() if name in parameters}
    try:
        return factory(**wanted, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{concept} '{piece.name}': {error}") from error


def _checked(
    piece: str, factory: Callable[..., object], option: str, value: object, allowed: set[str]
) -> object:
    """The value as the factory's annotation has it; raises `ConfigError` for an option that it lacks."""
    if option not in allowed:
        hint = nearest(kebab(option), map(kebab, allowed))
        raise ConfigError(f"{piece} has no option '{kebab(option)}'{hint}")
    annotated = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        return TypeAdapter(get_type_hints(annotated)[option]).validate_python(value)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise ConfigError(
            f"{piece}: {kebab(option)}: {reason[0].lower()}{reason[1:]}, got {value!r}"
        ) from error
