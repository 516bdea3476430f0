"""Federation files as flat tables: differences from the defaults and between runs."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

LEFT_OUT = ("recipe",)  # Sections that the report shows elsewhere


def flat(settings: Mapping[str, Any]) -> dict[str, str]:
    """`section.key` to the value in nearly TOML form; inline tables stay whole."""
    found: dict[str, str] = {}
    for section, table in settings.items():
        if section in LEFT_OUT:
            continue
        if isinstance(table, Mapping):
            found |= {f"{section}.{key}": _text(value) for key, value in table.items()}
        else:
            found[section] = _text(table)
    return found


def stated_settings(settings: Mapping[str, Any]) -> dict[str, str]:
    defaults = _defaults()
    return {key: value for key, value in flat(settings).items() if defaults.get(key) != value}


def differing(runs: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The keys in which runs differ, with each run's value, empty where it has none."""
    tables = [flat(run) for run in runs]
    keys = dict.fromkeys(key for table in tables for key in table)
    values = {key: tuple(table.get(key, "") for table in tables) for key in keys}
    return {key: each for key, each in values.items() if len(set(each)) > 1}


@lru_cache(maxsize=1)
def _defaults() -> dict[str, str]:
    from edge_server.config.config import Config

    return flat(tomllib.loads(Config().to_toml()))


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_text(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_text, value)) + "]"
    return json.dumps(value, ensure_ascii=False, default=str)
