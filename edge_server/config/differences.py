"""Compares a run folder's configuration with another."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from edge_server.config.config import Config
from edge_server.config.load import load_config
from schemas.strategy import Component

ADDED = {"fill-with-global": frozenset({"normalised"})}
"""Options that recipes got later: a run that an earlier version began goes on with them."""


def differences(
    written: Path, config: Config, may_differ: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Each key that differs from `config`, with both values, except those in `may_differ`.

    Statistics that a run has asked for itself are no difference, and neither are the options of `ADDED`.
    """
    before, now = _flat(load_config(str(written))), _flat(config)
    asked = config.data.scaling == "federated" and config.data.statistics is None
    for key in sorted({*before, *now} - {*may_differ} - ({"data.statistics"} if asked else set())):
        if before.get(key) != now.get(key):
            yield key, before.get(key), now.get(key)


def _flat(config: Config) -> dict[str, Any]:
    strategy = config.strategy
    transforms = tuple(
        each.model_copy(update={"options": _without_added(each)}) for each in strategy.transforms
    )
    config = config.model_copy(update={"strategy": strategy.model_copy(update={"transforms": transforms})})
    return {
        f"{section}.{key}": value
        for section, table in config.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        for key, value in table.items()
    }


def _without_added(transform: Component) -> dict[str, Any]:
    added = ADDED.get(transform.name, frozenset())
    return {name: value for name, value in transform.options.items() if name not in added}
