"""Everything that a report needs from a run folder."""

import json
import shlex
import sqlite3
import sys
import tomllib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.releases.registry import describe, registry
from edge_server.storage import records, run_files
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.provenance import Provenance, provenance
from edge_server.storage.run_folder import RunFolder, read_manifest
from schemas.errors import EdgeError
from schemas.selectors import EVERY, Where, selectable

NAME = "made.json"


def write_provenance(directory: Path) -> None:
    """Record the provenance of the run in this folder; a resumed run keeps its first record."""
    path = directory / NAME
    if not path.exists():
        write_synced(path, (_here().model_dump_json(indent=2) + "\n").encode())


def read_provenance(directory: Path) -> Provenance | None:
    """The recorded provenance; None where the file is missing or unreadable."""
    try:
        return Provenance.model_validate_json((directory / NAME).read_bytes())
    except (OSError, ValidationError):
        return None


@lru_cache(maxsize=1)
def _here() -> Provenance:
    """The provenance of this process, computed once: a comparison starts hundreds of runs."""
    return provenance(shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]))


@dataclass(frozen=True)
class RunContents:
    """The contents of a run folder; `settings` is the federation file as a table.

    `made` is None where the run's provenance is not recorded, `version` where it exported no model. `boards`
    and `trained` (examples times epochs) are by device, and empty without a journal, as in a simulation. The
    tables of tiers and devices are about the devices that `where` chooses.
    """

    folder: Path
    summary: records.Summary
    history: tuple[records.RoundRecord, ...]
    federation_toml: str
    settings: Mapping[str, Any]
    made: Provenance | None = None
    version: registry.Version | None = None
    described: Mapping[str, Any] = field(default_factory=dict)
    boards: Mapping[str, str] = field(default_factory=dict)
    trained: Mapping[str, int] = field(default_factory=dict)
    where: Where = EVERY

    def setting(self, section: str, key: str, default: Any = None) -> Any:
        table = self.settings.get(section)
        return table.get(key, default) if isinstance(table, Mapping) else default

    @property
    def devices(self) -> list[records.DeviceRecord]:
        """The devices that `where` chooses by the labels that they had in the run."""
        federation = self.summary.federation
        return [
            device
            for device in self.summary.devices
            if self.where.matches(selectable(device.labels, device=device.device, federation=federation))
        ]

    @property
    def is_simulated(self) -> bool:
        if not self.history:
            # A server locks its folder before the first round; a simulation has no other process to fear.
            return not (self.folder / "lock").exists()
        return any(record.virtual_time_s is not None for record in self.history)


def read_run_contents(directory: Path) -> RunContents:
    """Read a run folder; raises `ConfigError` naming the required file that is missing or broken."""
    files = run_files.read_run_files(directory)
    boards, trained = _journal(directory)
    version = _version(directory)
    return RunContents(
        directory,
        files.summary,
        files.history,
        files.federation_toml,
        tomllib.loads(files.federation_toml),
        read_provenance(directory),
        version,
        read_manifest(RunFolder(directory).version(files.history[-1].round)) if files.history else {},
        boards,
        trained,
    )


def _version(directory: Path) -> registry.Version | None:
    """The registry's description of the run's models; None without models or with invalid signatures."""
    try:
        return describe.describe_run(directory)
    except (EdgeError, OSError):
        return None


def _journal(directory: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Each device's board, and its number of examples times epochs."""
    try:
        with closing(JournalReader(RunFolder(directory).journal)) as reader:
            return {
                name: _board(profile) for name, _, profile, _ in reader.devices()
            }, reader.work_by_device()
    except (EdgeError, OSError, sqlite3.Error):
        return {}, {}


def _board(profile: str) -> str:
    """The machine name in a device's profile."""
    try:
        parsed = json.loads(profile)
    except ValueError:
        return ""
    return str(parsed.get("machine") or parsed.get("processor") or "") if isinstance(parsed, dict) else ""
