"""Simulations from Python: `edge_server.simulate`."""

import json
from pathlib import Path

from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.observability.snapshot import WatcherGroup
from edge_server.simulation.simulator import simulate as run_simulation
from edge_server.storage.run import Run, load_run
from edge_server.storage.run_names import run_folder

Value = str | int | float | bool | list[object]


def simulate(
    source: Config | str | Path = "fedavg",
    *overrides: str,
    out: str | Path | None = None,
    resume: bool = False,
    export: bool = True,
    **settings: Value,
) -> Run:
    """Simulate a federation to its end, and return the run.

    `source` is a recipe, a federation file or a `Config`. `overrides` are `key=value` words as on the command
    line, `settings` the same with underscores: `num_clients=10`. `resume` continues the run in the folder
    `out`. `export` writes the tiers' ONNX files. Raises `ConfigError` for wrong settings.
    """
    words = [*overrides, *(f"{key.replace('_', '-')}={_toml(value)}" for key, value in settings.items())]
    config = source if isinstance(source, Config) else load_config(str(source), words)
    folder = run_folder(Path(out) if out is not None else None, config.federation.name)
    run_simulation(config, out=folder, watcher=WatcherGroup(), resume=resume, export=export)
    return load_run(folder)


def _toml(value: Value) -> str:
    return json.dumps(value) if not isinstance(value, str) else value
