"""A finished run, read from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import read_run_files


@dataclass(frozen=True)
class Run:
    """A run that has ended, in its folder."""

    folder: Path
    summary: Summary
    rounds: tuple[RoundRecord, ...]

    @property
    def history(self) -> dict[str, list[Any]]:
        """The rounds as columns, {name: one value per round}; `RoundRecord` has the names."""
        # Fields that a dump leaves out where they are empty have a column too.
        rows = [dict(record) | record.model_dump() for record in self.rounds]
        return {name: [row[name] for row in rows] for name in RoundRecord.model_fields}

    @property
    def models(self) -> Mapping[int, Path]:
        """The ONNX file of each tier; empty where the run exported none."""
        return {tier: self.folder / path for tier, path in sorted(self.summary.onnx.items())}


def load_run(folder: str | Path) -> Run:
    """Read the folder of a run that has ended; raises `ConfigError` for a missing or broken file."""
    files = read_run_files(Path(folder))
    return Run(Path(folder), files.summary, files.history)
