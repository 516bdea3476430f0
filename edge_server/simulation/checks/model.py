"""Checks a federation file against its network and data before a run."""

from collections.abc import Callable
from pathlib import Path

from edge_client.data.sources import part_of
from edge_client.models.registry import entry
from edge_client.system.user_code import users_function
from edge_server.config.config import Config
from edge_server.config.test_data import load_test_data, read_source
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.simulation.checks.rehearsal import Rehearsed, rehearse
from edge_server.simulation.population import make_population
from edge_server.storage.run_names import RUNS
from schemas.errors import ConfigError


def check_run(
    config: Config, source: str, *, registry: Path | None = None, on_draw: Callable[[], None] = lambda: None
) -> Rehearsed | None:
    """Check data, partition and network, and rehearse two rounds; None if the data's shape is unknown.

    Raises `ConfigError` for the first problem. The default `registry` for an initial model is that of this
    folder's runs; `on_draw` as in `rehearse`.
    """
    try:
        data = load_test_data(config)
        if data is not None:
            _check_partition(config)
        if data is None and (config.model.input_shape is None or config.num_classes is None):
            users_function(entry(config.model.name).factory, what="[model] name")
            return None
        first = find_initial_model(config, [registry or RUNS / "registry"])
        return rehearse(config, data, first, on_draw=on_draw)
    except ConfigError as error:
        raise ConfigError(f"{source}: {_keyed(error)}") from error


def _keyed(error: ConfigError) -> str:
    """The message with a configuration key: an error that names none is about the network."""
    return str(error) if str(error).startswith(("[", "round ")) else f"[model] name: {error}"


def _check_partition(config: Config) -> None:
    data = read_source(config, part_of(str(config.data.source), "train"))
    try:
        make_population(config, data.strata, data.origins)
    except ConfigError as error:
        where = "" if str(error).startswith("[") else "[data] partition: "
        raise ConfigError(f"{where}{error}") from error
