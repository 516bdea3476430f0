"""The federation file: TOML in kebab-case, checked key by key.

A file names a recipe or states its pieces; what it says goes over the recipe, and `key=value` words of the
command line go over both.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from edge_client.data.partition import parse_partition
from edge_client.models.registry import entry
from edge_client.pruning import mean_ratio
from edge_server.config_errors import UNNAMED, explain
from edge_server.strategy.strategy import Strategy, make_strategy
from schemas.errors import ConfigError, nearest
from schemas.frozen import Settings, kebab
from schemas.names import Name
from schemas.strategy import Piece, StrategySpec, TrainingSettings

RECIPES = "edge_server.recipes"


class RecipeInfo(Settings):
    """What a recipe says of itself."""

    name: str
    summary: str
    citation: str


class FederationSettings(Settings):
    """The run as a whole; `deliver`: at the end every device exports its own ONNX model.

    The server tests the full model in every round that `evaluate-every` divides, and then every tier's too if
    `evaluate-tiers-every` divides it; both after the last round.
    """

    name: Name = "federation"
    seed: int = Field(default=0, ge=0)
    rounds: int = Field(default=10, ge=1, le=1_000_000)
    evaluate_every: int = Field(default=1, ge=1)
    evaluate_tiers_every: int = Field(default=1, ge=1)
    deliver: bool = True


class ClientSettings(Settings):
    """Who takes part in a round, and how long it may take (seconds).

    The run begins once `start_clients` are there (all `num_clients` unless stated). `over_select` times as
    many devices are asked as a round needs. In `buffered` mode a round closes with `buffer_size` updates
    that lag at most `max_staleness` rounds behind, and `concurrency` devices (all) train at once.
    """

    mode: Literal["rounds", "buffered"] = "rounds"
    num_clients: int = Field(default=5, ge=1)
    fraction: float = Field(default=1.0, gt=0, le=1)
    start_clients: int | None = Field(default=None, ge=1)
    min_clients: int = Field(default=1, ge=1)
    quorum: float = Field(default=0.5, ge=0, le=1)
    deadline_s: float = Field(default=600.0, gt=0)
    rejoin_s: float = Field(default=15.0, ge=0)
    uploads_at_once: int = Field(default=32, ge=1)
    over_select: float = Field(default=1.0, ge=1)
    buffer_size: int = Field(default=10, ge=1)
    max_staleness: int = Field(default=20, ge=0)
    concurrency: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _buffer_can_be_filled(self) -> ClientSettings:
        at_once = self.num_clients if self.concurrency is None else self.concurrency
        if self.mode == "rounds":
            return self
        if self.buffer_size > self.num_clients:
            raise ValueError(f"buffer-size {self.buffer_size} is more than num-clients {self.num_clients}")
        if self.buffer_size > at_once:
            raise ValueError(f"buffer-size {self.buffer_size} is more than concurrency {at_once}")
        if self.over_select > 1:
            raise ValueError("over-select is for mode 'rounds': a buffer waits for nobody in particular")
        return self


class ModelSettings(Settings):
    """The global network; shape and classes come from `[data] source` where they are not given."""

    name: str = "two-nn"
    num_classes: int | None = Field(default=None, ge=1)
    input_shape: tuple[Annotated[int, Field(ge=1)], ...] | None = None

    @model_validator(mode="after")
    def _model_is_known(self) -> ModelSettings:
        try:
            entry(self.name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


class DataSettings(Settings):
    """The data that the server tests on, and how simulated or local devices share it.

    With `test_samples` the server tests on so many of its examples, always the same ones.
    """

    source: str | None = None
    data_root: Path | None = None
    partition: str = "iid"
    alpha: float | None = Field(default=None, gt=0)
    shards: int | None = Field(default=None, ge=1)
    samples_per_client: int | None = Field(default=None, ge=1)
    test_samples: int | None = Field(default=None, ge=1)

    @property
    def partition_spec(self) -> str:
        """The partition with its number, as `edge-client --partition` takes it."""
        number = {"dirichlet": self.alpha, "shards": self.shards}.get(self.partition)
        return self.partition if number is None else f"{self.partition}({number})"

    @model_validator(mode="after")
    def _partition_is_known(self) -> DataSettings:
        try:
            parse_partition(self.partition_spec)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


_Share = Annotated[float, Field(ge=0, lt=1)]
_Ratio = Annotated[
    Annotated[_Share, Tag(f"{UNNAMED}number")] | Annotated[Mapping[str, _Share], Tag(f"{UNNAMED}table")],
    Discriminator(lambda value: f"{UNNAMED}{'table' if isinstance(value, Mapping) else 'number'}"),
]


class TierSettings(Settings):
    """Capability tiers, the weakest first: tier n trains with pruning ratio `ratios[n - 1]`.

    A ratio may be a table per layer, `{"layer1.*" = 0.2, "layer3.*" = 0.6}` (ATTENDING, appendix H):
    the first glob that matches counts, and what none matches stays whole.
    """

    ratios: Annotated[tuple[_Ratio, ...], Field(min_length=1)] = (
        0.7,
        0.5,
        0.3,
        0.1,
        0.0,
    )

    @property
    def levels(self) -> tuple[float, ...]:
        """One number per tier: a table's mean (ATTENDING, eq. 10)."""
        return tuple(mean_ratio(ratio) for ratio in self.ratios)


class SimulationSettings(Settings):
    """How `edge-server simulate` runs devices that are not there.

    `workers`: processes, as many as cores unless stated; `clock`: the boards whose speed the devices have,
    the weakest first (none: whatever they do takes no time); `dropouts`: they come and go as such boards do;
    `hold_out`: the share of its examples that a device never trains on. `joins_s`: when each device first
    comes, in virtual seconds, the last one's time for all that follow; they come and stay.
    `ray_address`: the cluster of the engine `ray`, as `host:port`; without it, one begun on this machine.
    """

    engine: str = "local"
    ray_address: str | None = None
    workers: int | None = Field(default=None, ge=1, le=1024)
    device: Literal["cpu", "cuda"] = "cpu"
    clock: tuple[str, ...] = ("pi-zero-2", "pi-3", "pi-4", "pi-5", "jetson-nano")
    dropouts: bool = False
    hold_out: float = Field(default=0.0, ge=0, lt=1)
    joins_s: tuple[Annotated[float, Field(ge=0)], ...] = ()

    @model_validator(mode="after")
    def _engine_is_known(self) -> SimulationSettings:
        from edge_server.simulation.engines import check_engine

        try:
            check_engine(self.engine)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if self.ray_address is not None and self.engine != "ray":
            raise ValueError("ray-address is for engine = 'ray'")
        return self

    @model_validator(mode="after")
    def _boards_are_known(self) -> SimulationSettings:
        from edge_server.simulation.profiles import profile

        try:
            for name in self.clock:
                profile(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


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
    strategy: StrategySpec = StrategySpec()

    def algorithm(self) -> StrategySpec:
        """The strategy, with the share of clients per round from `[clients]` where it has no schedule."""
        constant = Piece(name="constant", options={"value": self.clients.fraction})
        return self.strategy.model_copy(update={"fraction": self.strategy.fraction or constant})

    def make_strategy(self) -> Strategy:
        """The strategy's pieces, made for this run; raises `ConfigError` for the first that cannot be."""
        run = self.federation
        return make_strategy(self.algorithm(), self.tiers.ratios, rounds=run.rounds, seed=run.seed)

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


def recipe_names() -> list[str]:
    """The shipped recipes."""
    return sorted(
        item.name.removesuffix(".toml")
        for item in resources.files(RECIPES).iterdir()
        if item.name.endswith(".toml")
    )


def read_recipe(name: str) -> dict[str, Any]:
    """A shipped recipe as it stands; raises `ConfigError` with the nearest name."""
    if name not in recipe_names():
        raise ConfigError(f"unknown recipe '{name}'{nearest(name, recipe_names())}")
    table = tomllib.loads((resources.files(RECIPES) / f"{name}.toml").read_text())
    table["recipe"]["name"] = name
    return table


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
        config = Config.model_validate(table, by_alias=True, by_name=False)
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
    if not dot:
        section, name = _section_of(key), key
    return {section: {name: _toml_value(text)}}


def _section_of(key: str) -> str:
    sections = {
        name: {field.alias for field in info.annotation.model_fields.values()}
        for name, info in Config.model_fields.items()
        if isinstance(info.annotation, type) and name not in ("recipe", "strategy")
    }
    owners = [name for name, keys in sections.items() if key in keys]
    if len(owners) == 1:
        return owners[0]
    if owners:
        raise ConfigError(f"'{key}' stands in several sections: {', '.join(f'{o}.{key}' for o in owners)}")
    every = {alias for keys in sections.values() for alias in keys if alias}
    raise ConfigError(f"unknown key '{key}'{nearest(key, every)}")


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
