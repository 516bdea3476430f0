"""From a piece's name and options, as a recipe states them, to the piece itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

from schemas.errors import ConfigError, nearest
from schemas.frozen import kebab
from schemas.strategy import Piece

T = TypeVar("T")


def make(concept: str, registry: Mapping[str, Callable[..., T]], piece: Piece, **provided: object) -> T:
    """Call the registered factory of `piece`; raises `ConfigError` with the nearest names.

    `provided` are arguments that the run itself has for any factory that wants them; options go first.
    """
    factory = registry.get(piece.name)
    if factory is None:
        raise ConfigError(f"unknown {concept} '{piece.name}'{nearest(piece.name, registry)}")
    parameters = inspect.signature(factory).parameters
    for option in piece.options:
        if option not in parameters:
            hint = nearest(kebab(option), map(kebab, parameters))
            raise ConfigError(f"{concept} '{piece.name}' has no option '{kebab(option)}'{hint}")
    try:
        wanted = {name: value for name, value in provided.items() if name in parameters}
        return factory(**{**wanted, **piece.options})
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{concept} '{piece.name}': {error}") from error
