"""Going on with a simulation that was interrupted, from the last round that it has closed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge_client.files import write_synced
from edge_server.config import Config, load_config
from edge_server.history import RoundRecord
from edge_server.run_folder import RunFolder
from edge_server.simulation.boundary import Boundary, cut_history, read_boundary
from edge_server.tally import Tally
from schemas.errors import ConfigError

MAY_DIFFER = (
    "federation.rounds",
    "privacy.budget",
    "simulation.workers",
    "simulation.engine",
    "simulation.ray-address",
)
"""How far a run goes, and what decides no result."""


def reopen(out: Path, config: Config) -> RunFolder:
    """The run folder at `out`; raises `ConfigError` unless it holds a run of this very configuration."""
    path = out / "federation.toml"
    if not path.exists():
        raise ConfigError(f"--resume: there is no run in {out}")
    if config.clients.mode == "buffered":
        raise ConfigError("--resume: a run in buffered mode cannot go on from a checkpoint")
    before, now = _flat(load_config(str(path))), _flat(config)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key) and key not in MAY_DIFFER:
            raise ConfigError(
                f"--resume: {key} is {now.get(key)!r}, the run in {out} has {before.get(key)!r}; "
                f"only {', '.join(MAY_DIFFER)} may differ"
            )
    write_synced(path, config.to_toml().encode())
    return RunFolder(out)


def restore(folder: RunFolder, tally: Tally) -> Boundary | None:
    """Bring history and counts back to the last closed round; None where the run must begin anew."""
    boundary = read_boundary(folder.path, tally)
    closed = boundary.round if boundary else 0
    for line in cut_history(folder.path / "history.jsonl", closed):
        tally.closed(RoundRecord.model_validate_json(line))
    return boundary


def _flat(config: Config) -> dict[str, Any]:
    return {
        f"{section}.{key}": value
        for section, table in config.model_dump(mode="json", by_alias=True, exclude_none=True).items()
        for key, value in table.items()
    }
