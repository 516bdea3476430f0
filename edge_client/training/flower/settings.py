"""The settings of a Flower app; imports nothing of Flower."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schemas.errors import ConfigError

Value = bool | int | float | str
UserConfig = Mapping[str, Value]


@dataclass(frozen=True)
class FlowerSettings:
    """`app` is `package.module:attribute`, or a folder whose pyproject.toml names the app.

    `run_config` has priority over the app's pyproject.toml and the federation's plan; `node_config` is
    Flower's: `partition-id` and `num-partitions`.
    """

    app: str
    run_config: UserConfig = field(default_factory=dict)
    node_config: UserConfig = field(default_factory=dict)


def read_words(words: Iterable[str], *, option: str) -> dict[str, Value]:
    """Parse `key=value` words with TOML values or bare strings; raises `ConfigError`."""
    found: dict[str, Value] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not key.strip() or not equals:
            raise ConfigError(f"{option} '{word}': expected key=value, for instance batch-size=32")
        found[key.strip()] = _value(text.strip(), option, word)
    return found


def app_table(folder: Path) -> dict[str, object]:
    """`[tool.flwr.app]` of a folder's pyproject.toml; empty without one."""
    try:
        table = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return {}
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{folder / 'pyproject.toml'}: not valid TOML: {error}") from error
    for key in ("tool", "flwr", "app"):
        table = table.get(key, {}) if isinstance(table, dict) else {}
    return table if isinstance(table, dict) else {}


def flat_config(table: object, before: str = "") -> dict[str, Value]:
    """The app's `[config]`, flattened as by Flower: inner tables become `table.key`."""
    found: dict[str, Value] = {}
    for key, value in table.items() if isinstance(table, dict) else ():
        if isinstance(value, dict):
            found |= flat_config(value, f"{before}{key}.")
        elif isinstance(value, bool | int | float | str):
            found[f"{before}{key}"] = value
    return found


def _value(text: str, option: str, word: str) -> Value:
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
    if not isinstance(value, bool | int | float | str):
        raise ConfigError(f"{option} '{word}': expected a number, true, false or a string, as in Flower")
    return value
