"""The inputs that the weights of `[model] from` know, for a run that does not state its own."""

from collections.abc import Sequence
from pathlib import Path

from edge_client.models.registry import InputRecord, is_library_network, trunk_of
from edge_client.models.zoo import input_record
from edge_server.config import load, test_data
from edge_server.config.config import Config
from edge_server.coordinator.initial_model import find_initial_model


def with_known_inputs(config: Config, registries: Sequence[Path], out: Path | None = None) -> Config:
    """The configuration with the inputs of the weights that it starts from, which the run keeps to its end.

    They come from the run in `out`, if it has begun, else from the record of the weights. Nothing is read of
    the weights themselves.
    """
    if config.model.from_ is None or config.federation.statistics:
        return config
    if out is not None and (begun := _read_begun(config, out)) is not None:
        return begun
    record = _find_record(config, registries)
    return config if record is None else test_data.with_inputs(config, record)


def _read_begun(config: Config, out: Path) -> Config | None:
    """The configuration with what the run in `out` has taken; None if there is none from these weights."""
    written = out / "federation.toml"
    before = load.load_config(str(written)) if written.is_file() else None
    if before is None or before.model.from_ != config.model.from_:
        return None
    taken = {key: getattr(before.data, key) for key in test_data.KEYS if getattr(config.data, key) is None}
    shape = config.model.input_shape or before.model.input_shape
    data, model = config.data.model_copy(update=taken), config.model.model_copy(update={"input_shape": shape})
    return config.model_copy(update={"data": data, "model": model})


def _find_record(config: Config, registries: Sequence[Path]) -> InputRecord | None:
    first = find_initial_model(config, registries)
    if first is not None and first.inputs is not None:
        return first.inputs
    # A file of weights for a library's network was most likely trained on from those that it publishes.
    is_run = first is None or first.manifest
    name = trunk_of(config.model.name)
    return None if is_run or not is_library_network(name) else input_record(name)
