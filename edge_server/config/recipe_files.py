"""The recipes that ship with the package: named algorithms as TOML."""

import tomllib
from importlib import resources
from typing import Any

from schemas.errors import ConfigError, nearest

RECIPES = "edge_server.config.recipes"


def recipe_names() -> list[str]:
    names = [item.name for item in resources.files(RECIPES).iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_recipe(name: str) -> dict[str, Any]:
    """A shipped recipe's table; `ConfigError` with the nearest name."""
    if name not in recipe_names():
        raise ConfigError(f"unknown recipe '{name}'{nearest(name, recipe_names())}")
    table = tomllib.loads((resources.files(RECIPES) / f"{name}.toml").read_text())
    table["recipe"]["name"] = name
    return table


def recipes() -> dict[str, str]:
    return {name: read_recipe(name)["recipe"]["summary"] for name in recipe_names()}
