"""Compares a run folder's configuration with another."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from edge_server.config.config import Config
from edge_server.config.load import load_config

WORDS = frozenset({"recipe.summary", "recipe.citation"})  # keys that describe and set nothing


def differences(
    written: Path, config: Config, may_differ: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Each key that differs from `config`, with both values, except those in `may_differ`.

    Statistics that a run has asked for itself are no difference.
    """
    before, now = _flat(load_config(str(written))), _flat(config)
    asked = config.data.scaling == "federated" and config.data.statistics is None
    for key in sorted({*before, *now} - {*may_differ} - WORDS - ({"data.statistics"} if asked else set())):
        if before.get(key) != now.get(key):
            yield key, before.get(key), now.get(key)


def _flat(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section, table in config.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        for key, value in table.items()
    }
