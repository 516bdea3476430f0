"""The federation file: TOML in kebab-case, checked key by key.

A file names a recipe or states its pieces; what it says goes over the recipe, and `key=value` words of the
command line go over both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from edge_server.config_errors import explain, section_keys
from edge_server.depot.settings import BlobSettings
from edge_server.home_assistant.settings import HomeAssistantSettings
from edge_server.privacy_settings import PrivacySettings
from edge_server.recipe_files import read_recipe, recipe_names
from edge_server.settings import (
    ClientSettings,
    DataSettings,
    FederationSettings,
    FirewallSettings,
    ModelSettings,
    RecipeInfo,
    SimulationSettings,
    TierSettings,
)
from edge_server.sparkplug.settings import SparkplugSettings
from edge_server.strategy.strategy import Strategy, make_strategy
from schemas.errors import ConfigError, near, nearest
from schemas.frozen import Settings, kebab
from schemas.strategy import Piece, StrategySpec, TrainingSettings

DEFAULT_UPLINK = (Piece(name="int8", options={"levels": 7}), Piece(name="zstd"))
DEFAULT_DOWNLINK = (Piece(name="fp16"),)
"""What a federation gets whose file says nothing (tests/benchmarks/bytes.py has the figures)."""


class Config(Settings):
    """A whole federation file."""

    recipe: RecipeInfo | None = None
    federation: FederationSettings = FederationSettings()
    clients: ClientSettings = ClientSettings()
    model: ModelSettings = ModelSettings()
    data: DataSettings = DataSettings()
    training: TrainingSettings = TrainingSettings()
    tiers: TierSettings = TierSettings()
    simulation: SimulationSettings = SimulationSettings()
    privacy: PrivacySettings = PrivacySettings()
    firewall: FirewallSettings = FirewallSettings()
    blobs: BlobSettings = BlobSettings()
    home_assistant: HomeAssistantSettings = HomeAssistantSettings()
    sparkplug: SparkplugSettings = SparkplugSettings()
    strategy: StrategySpec = StrategySpec()

    @property
    def num_classes(self) -> int | None:
        """How many classes the model tells apart, where the file says so."""
        return self.model.num_classes or (len(self.data.classes) if self.data.classes else None)

    def algorithm(self) -> StrategySpec:
        """The strategy, with the share of clients per round from `[clients]` where it has no schedule."""
        constant = Piece(name="constant", options={"value": self.clients.fraction})
        return self.strategy.model_copy(update={"fraction": self.strategy.fraction or constant})

    def with_codecs(self) -> Config:
        """The file with its codecs stated; masked updates have none, for noise cannot be made smaller."""
        up, down = self.strategy.uplink, self.strategy.downlink
        usual_up = () if self.privacy.secure_aggregation else DEFAULT_UPLINK
        stated = {
            "uplink": usual_up if up is None else up,
            "downlink": DEFAULT_DOWNLINK if down is None else down,
        }
        return self.model_copy(update={"strategy": self.strategy.model_copy(update=stated)})

    def make_strategy(self) -> Strategy:
        """The strategy's pieces, made for this run; raises `ConfigError` for the first that cannot be."""
        run = self.federation
        made = make_strategy(self.algorithm(), self.tiers.ratios, rounds=run.rounds, seed=run.seed)
        return replace(made, privacy=self.privacy.gaussian, claims=self.firewall.claims)

    def to_toml(self) -> str:
        """The resolved file, every default written out."""
        return tomli_w.dumps(
            _pieces_as_written(self.model_dump(mode="json", by_alias=True, exclude_none=True))
        )


def _pieces_as_written(value: Any) -> Any:
    """Write a piece as users do: its name, or a table of its name and options."""
    if isinstance(value, dict) and value.keys() == {"name", "options"}:
        options = {kebab(key): option for key, option in value["options"].items()}
        return {"name": value["name"], **options} if options else value["name"]
    if isinstance(value, dict):
        return {key: _pieces_as_written(item) for key, item in value.items()}
    return [_pieces_as_written(item) for item in value] if isinstance(value, list) else value


def load_config(source: str, overrides: Sequence[str] = ()) -> Config:
    """Read a federation file, or a recipe by name, and put `key=value` overrides over it."""
    path = Path(source)
    if source in recipe_names() and not path.exists():
        table = read_recipe(source)
    else:
        table = _with_recipe(_read_toml(path), source)
    for override in overrides:
        table = merge_tables(table, override_table(override))
    return check_config(table, source)


def check_config(table: Mapping[str, Any], source: str) -> Config:
    """Check a parsed file; raises `ConfigError` that names file, key, reason and remedy."""
    try:
        config = Config.model_validate(table, by_alias=True, by_name=False).with_codecs()
    except ValidationError as error:
        raise ConfigError(explain(error, Config, source)) from error
    try:
        strategy = config.make_strategy()
        _check_local_training(config)
    except ConfigError as error:
        raise ConfigError(f"{source}: [strategy] {error}") from error
    _check_combination(config, strategy, source)
    return config


def _check_local_training(config: Config) -> None:
    """What devices would find out one by one; imports torch, as their training does."""
    from edge_client.objectives.registry import build_objectives
    from edge_client.training import check_optimizer

    check_optimizer(config.training.optimizer)
    build_objectives(config.strategy.objectives)


def _check_combination(config: Config, strategy: Strategy, source: str) -> None:
    from edge_server.compatibility import problems

    found = problems(config, strategy)
    if found:
        raise ConfigError("\n".join(f"{source}: {problem}" for problem in found))


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError:
        hint = nearest(str(path), recipe_names()) if path.suffix == "" else ""
        raise ConfigError(f"{path}: there is no such file or recipe{hint}") from None
    except IsADirectoryError:
        inside = path / "federation.toml"
        remedy = f"name {inside}" if inside.is_file() else "name a federation file, or a recipe"
        raise ConfigError(f"{path}: this is a folder: {remedy}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def _with_recipe(table: dict[str, Any], source: str) -> dict[str, Any]:
    name = table.get("recipe")
    if not isinstance(name, str):
        return table
    try:
        recipe = read_recipe(name)
    except ConfigError as error:
        raise ConfigError(f"{source}: recipe: {error}") from error
    return merge_tables(recipe, {key: value for key, value in table.items() if key != "recipe"})


def merge_tables(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay tables over tables section by section; a piece of the strategy is replaced whole."""
    merged = dict(base)
    for section, value in over.items():
        if isinstance(value, Mapping) and isinstance(merged.get(section), Mapping):
            merged[section] = {**merged[section], **value}
        else:
            merged[section] = value
    return merged


def override_table(word: str) -> dict[str, Any]:
    """One `key=value` word as the table that it stands for; raises `ConfigError` with the nearest key."""
    key, equals, text = word.partition("=")
    if not equals or not key:
        raise ConfigError(f"'{word}' is not key=value (for instance rounds=3 or training.learning-rate=0.1)")
    section, dot, name = key.partition(".")
    if section == "recipe":
        raise ConfigError(
            f"'{word}': a recipe is no key to put over a file: name it as the first argument "
            f'(edge-server simulate {text if not dot else "fedavg"}), or write recipe = "..." '
            "at the top of the file"
        )
    if not dot:
        section, name = _section_of(key), key
    return {section: {name: _toml_value(text)}}


def _section_of(key: str) -> str:
    sections = section_keys(Config)
    pieces = sections.pop("strategy")
    owners = [name for name, keys in sections.items() if key in keys]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise ConfigError(f"'{key}' stands in several sections: {', '.join(f'{o}.{key}' for o in owners)}")
    if key in pieces:
        raise ConfigError(f"unknown key '{key}': it is one of [strategy], so write strategy.{key}=...")
    match = near(key, {alias for keys in sections.values() for alias in keys})
    remedy = (
        " (`edge-server check FILE` prints every key)" if match is None else f" (did you mean '{match}'?)"
    )
    raise ConfigError(f"unknown key '{key}'{remedy}")


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
