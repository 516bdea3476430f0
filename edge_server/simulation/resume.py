"""Going on with a simulation that was interrupted, from the last round that it has closed."""

from __future__ import annotations

import contextlib
from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.config.differences import differences
from edge_server.observability.counters import RunCounters
from edge_server.simulation.round_checkpoint import Boundary, cut_history, read_boundary
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord
from edge_server.storage.run_folder import RunFolder
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
    for key, before, now in differences(path, config, MAY_DIFFER):
        raise ConfigError(
            f"--resume: {key} is {now!r}, the run in {out} has {before!r}; "
            f"only {', '.join(MAY_DIFFER)} may differ"
        )
    write_synced(path, config.to_toml().encode())
    return RunFolder(out)


def _rebuild_history(folder: RunFolder) -> None:
    """Write the history as the journal has it, where all of that can be read."""
    if not folder.journal.exists():
        return
    with contextlib.closing(JournalReader(folder.journal)) as reader, contextlib.suppress(ValueError):
        folder.rewrite_history([RoundRecord.model_validate_json(one.record) for one in reader.rounds()])


def restore(folder: RunFolder, tally: RunCounters) -> Boundary | None:
    """Bring history and counts back to the last closed round; None where the run must begin anew."""
    boundary = read_boundary(folder.path, tally)
    closed = boundary.round if boundary else 0
    _rebuild_history(folder)
    for line in cut_history(folder.path / "history.jsonl", closed):
        tally.closed(RoundRecord.model_validate_json(line))
    return boundary
