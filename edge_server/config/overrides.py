"""Merges tables of a federation file, and parses `key=value` arguments as tables."""

import tomllib
from collections.abc import Mapping
from typing import Any

from edge_server.config.config import Config
from edge_server.config.errors import section_keys
from schemas.errors import ConfigError, near


def merge_tables(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables section by section; a component of the strategy is replaced as a whole."""
    merged = dict(base)
    for section, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(section), Mapping):
            merged[section] = {**merged[section], **value}
        else:
            merged[section] = value
    return merged


def override_table(word: str) -> dict[str, Any]:
    """The table of one `key=value` argument; `ConfigError` with the nearest key."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise ConfigError(f"'{word}' is not key=value (for instance rounds=3 or training.learning-rate=0.1)")
    section, dot, name = key.partition(".")
    if section == "recipe":
        raise ConfigError(
            "a recipe is not a key to put over a file",
            key=f"'{word}'",
            remedy=f"name it as the first argument (edge-server simulate {text if not dot else 'fedavg'}), "
            'or write recipe = "..." at the top of the file',
        )
    if not dot:
        section, name = _section_of(key), key
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    return {section: {name: value}}


def _section_of(key: str) -> str:
    sections = section_keys(Config)
    components = sections.pop("strategy")
    owners = [name for name, keys in sections.items() if key in keys]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise ConfigError(f"'{key}' stands in several sections: {', '.join(f'{o}.{key}' for o in owners)}")
    if key in components:
        raise ConfigError(f"unknown key '{key}': it is one of [strategy], so write strategy.{key}=...")
    match = near(key, {alias for keys in sections.values() for alias in keys})
    remedy = "`edge-server check FILE` prints every key" if match is None else f"did you mean '{match}'?"
    raise ConfigError(f"unknown key '{key}' ({remedy})")
