"""Reads a federation file: TOML, overrides, and all checks; compares one with another."""

import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_server.config import test_data
from edge_server.config.config import Config
from edge_server.config.errors import explain
from schemas.errors import ConfigError, nearest

# The recipes that ship with the package: named algorithms as TOML.

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


def load_config(source: str, overrides: Sequence[str] = ()) -> Config:
    """Read a federation file, or a recipe by name, and apply `key=value` overrides."""
    table = read_table(source)
    for override in overrides:
        table = test_data.merge_tables(table, test_data.override_table(override))
    return check_config(table, source)


def read_table(source: str) -> Mapping[str, Any]:
    """The settings that a federation file and its recipe, or a recipe by name, state; unchecked."""
    path = Path(source)
    if source in recipe_names() and not path.exists():
        return read_recipe(source)
    return _with_recipe(_read_toml(path), source)


def check_config(table: Mapping[str, Any], source: str) -> Config:
    """Check a parsed file; `ConfigError` names file, key, reason and remedy."""
    from edge_client.training.epochs import check_optimizer
    from edge_client.training.objectives.registry import build_objectives
    from edge_server.config.checks.combinations import problems

    try:
        config = Config.model_validate(table, by_alias=True, by_name=False).with_codecs()
    except ValidationError as error:
        raise explain(error, Config, source) from error
    try:
        strategy = config.make_strategy()
        # Devices would otherwise fail at these one by one.
        check_optimizer(config.training.optimizer)
        build_objectives(config.strategy.objectives)
    except ConfigError as error:
        raise ConfigError(f"[strategy] {error}", place=source) from error
    if found := problems(config, strategy):
        raise ConfigError.of(found, source)
    return config


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        hint = nearest(str(path), recipe_names()) if path.suffix == "" else ""
        raise ConfigError(f"there is no such file or recipe{hint}", place=path) from None
    except IsADirectoryError:
        inside = path / "federation.toml"
        remedy = f"name {inside}" if inside.is_file() else "name a federation file, or a recipe"
        raise ConfigError("this is a folder", place=path, remedy=remedy) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {error}", place=path) from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}", place=path) from error


def _with_recipe(table: dict[str, Any], source: str) -> dict[str, Any]:
    name = table.get("recipe")
    if not isinstance(name, str):
        return table
    try:
        recipe = read_recipe(name)
    except ConfigError as error:
        raise ConfigError(str(error), place=source, key="recipe") from error
    return test_data.merge_tables(recipe, {key: value for key, value in table.items() if key != "recipe"})


OF_WEIGHTS = ("model.input-shape", *(f"data.{key}" for key in test_data.KEYS))
WORDS = frozenset({"recipe.summary", "recipe.citation"})  # keys that describe and set nothing


def differences(
    written: Path, config: Config, may_differ: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Each key that differs from `config`, with both values, except those in `may_differ`.

    What a run has asked for or taken itself is no difference: statistics, and the inputs of its weights.
    """
    before, now = _flat(load_config(str(written))), _flat(config)
    asked = config.data.scaling == "federated" and config.data.statistics is None
    own = {"data.statistics"} if asked else set[str]()
    if config.model.from_ is not None:
        own |= {key for key in OF_WEIGHTS if key not in now}
    for key in sorted({*before, *now} - {*may_differ} - WORDS - own):
        if before.get(key) != now.get(key):
            yield key, before.get(key), now.get(key)


def _flat(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section, table in config.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        for key, value in table.items()
    }
