"""Make a strategy's components from the names and options in a recipe."""

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar, get_type_hints

from pydantic import TypeAdapter, ValidationError

from schemas.base import kebab
from schemas.errors import ConfigError, nearest, reason_of
from schemas.strategy import Component

T = TypeVar("T")


def make_component(
    concept: str, registry: Mapping[str, Callable[..., T]], component: Component, **provided: object
) -> T:
    """Call the registered factory of `component`; raises `ConfigError` with the nearest names.

    `provided` are arguments of the run for the factories that take them; no option may have such a name.
    """
    factory = registry.get(component.name)
    if factory is None:
        raise ConfigError(f"unknown {concept} '{component.name}'{nearest(component.name, registry)}")
    parameters = inspect.signature(factory).parameters
    allowed, named = set(parameters) - set(provided), f"{concept} '{component.name}'"
    options = {
        key: _check_option(named, factory, key, value, allowed) for key, value in component.options.items()
    }
    wanted = {name: value for name, value in provided.items() if name in parameters}
    try:
        return factory(**wanted, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{named}: {error}") from error


def _check_option(
    named: str, factory: Callable[..., object], option: str, value: object, allowed: set[str]
) -> object:
    """The value as the factory's annotation has it; raises `ConfigError` for an option that it lacks."""
    if option not in allowed:
        hint = nearest(kebab(option), map(kebab, allowed))
        raise ConfigError(f"{named} has no option '{kebab(option)}'{hint}")
    annotated = factory.__init__ if isinstance(factory, type) else factory  # type: ignore[misc]
    try:
        return TypeAdapter(get_type_hints(annotated)[option]).validate_python(value)
    except ValidationError as error:
        reason = reason_of(error.errors(include_url=False)[0])
        raise ConfigError(f"{named}: {kebab(option)}: {reason}, got {value!r}") from error
