"""Compares a run folder's configuration with another."""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.config.recipe_files import read_recipe, recipe_names
from edge_server.config.sections import RunTrainingSettings
from schemas.base import kebab
from schemas.strategy import Component

ADDED = {"fill-with-global": frozenset({"decay", "normalised"})}
"""Options that recipes got later: a run that an earlier version began goes on without them."""
EARLIER: Mapping[tuple[str, str], Mapping[Any, Any]] = {("fill-with-global", "decay"): {0.1: 0.05}}
"""What recipes had for a value of today: a run that began with the former goes on with it."""

EARLIER_TRAINING: Mapping[str, Any] = {"optimizer": "sgd", "learning_rate": 0.01, "local_epochs": 1}
"""Defaults of an earlier version, with which its runs go on."""


def differences(
    written: Path, config: Config, may_differ: Collection[str] = ()
) -> Iterator[tuple[str, Any, Any]]:
    """Each key that differs from `config`, with both values, except those in `may_differ`.

    Statistics that a run has asked for itself are no difference, nor are options of `ADDED` that it lacks.
    """
    begun = load_config(str(written))
    before, now = _flat(begun), _flat(_without_later_options(begun, config))
    asked = config.data.scaling == "federated" and config.data.statistics is None
    for key in sorted({*before, *now} - {*may_differ} - ({"data.statistics"} if asked else set())):
        if before.get(key) != now.get(key):
            yield key, before.get(key), now.get(key)


def as_begun(written: Path, config: Config) -> Config:
    """`config` without options of `ADDED` that the run with the file `written`, if any, began without."""
    return _without_later_options(load_config(str(written)), config) if written.exists() else config


def _without_later_options(before: Config, config: Config) -> Config:
    began = {each.name: each.options for each in before.strategy.transforms}

    def kept(transform: Component) -> Component:
        options = began.get(transform.name, {})
        later = ADDED.get(transform.name, frozenset()) - options.keys()
        now = {name: value for name, value in transform.options.items() if name not in later}
        had = {name: EARLIER.get((transform.name, name), {}).get(value) for name, value in now.items()}
        earlier = {name: value for name, value in had.items() if value and value == options.get(name)}
        return transform.model_copy(update={"options": {**now, **earlier}})

    transforms = tuple(map(kept, config.strategy.transforms))
    strategy: dict[str, Any] = {"transforms": transforms}
    combiner = config.strategy.combiner
    if combiner.name == before.strategy.combiner.name and combiner == _combiner_of_recipe(config):
        # What a recipe leaves out of a round may change.
        strategy["combiner"] = before.strategy.combiner
    bounds = {
        name: getattr(before.firewall, name)
        for name in ("norm_factor", "norm_spread")
        if name not in config.firewall.model_fields_set
    }
    changes: dict[str, Any] = {
        "strategy": config.strategy.model_copy(update=strategy),
        "training": _without_later_steps(before.training, config),
        "firewall": config.firewall.model_copy(update=bounds),
    }
    if before.recipe and config.recipe and before.recipe.name == config.recipe.name:
        # A recipe's summary and citation are no difference.
        changes["recipe"] = before.recipe
    return config.model_copy(update=changes)


def _without_later_steps(before: RunTrainingSettings, config: Config) -> RunTrainingSettings:
    """The training of `config`, without steps that its recipe or a default got after the run began."""
    now = config.training
    defaults = {**EARLIER_TRAINING, "warm_up_steps": before.warm_up_steps}
    began = {name: value for name, value in defaults.items() if getattr(before, name) == value}
    unstated = began.keys() - now.model_fields_set
    now = now.model_copy(update={name: began[name] for name in unstated})
    recipe = _of_recipe(config, "training")
    for name in ("sam_passes", "rate_by_width"):
        if not getattr(before, name) and getattr(now, name) == recipe.get(kebab(name)):
            now = now.model_copy(update={name: getattr(before, name)})
    if before.sam_radius or now.sam_radius != recipe.get("sam-radius"):
        return now
    return now.model_copy(update={"sam_radius": 0.0, "sam_normalised": before.sam_normalised})


def _combiner_of_recipe(config: Config) -> Component | None:
    stated = _of_recipe(config, "strategy").get("combiner")
    return None if stated is None else Component.model_validate(stated)


def _of_recipe(config: Config, section: str) -> Mapping[str, Any]:
    """What the file's recipe states in a section."""
    if config.recipe is None or config.recipe.name not in recipe_names():
        return {}
    stated: Mapping[str, Any] = read_recipe(config.recipe.name).get(section, {})
    return stated


def _flat(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section, table in config.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        for key, value in table.items()
    }
