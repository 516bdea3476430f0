"""Everything that a run's folder says to a report, beside the three files that every run has."""

from __future__ import annotations

import json
import sqlite3
import tomllib
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edge_server.observability.report.provenance_file import read_provenance
from edge_server.releases.registry.describe import describe_run
from edge_server.releases.registry.version import Version
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.provenance import Provenance
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_files import read_run_files
from edge_server.storage.run_folder import RunFolder
from schemas.errors import EdgeError


@dataclass(frozen=True)
class RunContents:
    """A run as a report tells it; `settings` is the federation file as a table.

    `made` is None for a run that left no such note, `version` for one that exported no model. `boards` and
    `trained`, examples times epochs, are by device, empty where there is no journal, as in a simulation.
    """

    folder: Path
    summary: Summary
    history: tuple[RoundRecord, ...]
    federation_toml: str
    settings: Mapping[str, Any]
    made: Provenance | None = None
    version: Version | None = None
    described: Mapping[str, Any] = field(default_factory=dict)
    boards: Mapping[str, str] = field(default_factory=dict)
    trained: Mapping[str, int] = field(default_factory=dict)

    def setting(self, section: str, key: str, default: Any = None) -> Any:
        """One value of the federation file."""
        table = self.settings.get(section)
        return table.get(key, default) if isinstance(table, Mapping) else default

    @property
    def simulated(self) -> bool:
        """Whether its devices were virtual."""
        return any(record.virtual_time_s is not None for record in self.history)


def read_run_contents(directory: Path) -> RunContents:
    """Read a run folder; raises `ConfigError` naming which of its three files is missing or broken."""
    files = read_run_files(directory)
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
        _described(directory, files.history),
        boards,
        trained,
    )


def _version(directory: Path) -> Version | None:
    """What the registry would say of it; nothing where it has no models, or not what their signatures say."""
    try:
        return describe_run(directory)
    except (EdgeError, OSError):
        return None


def _described(directory: Path, history: tuple[RoundRecord, ...]) -> Mapping[str, Any]:
    """The manifest of the last round's model, as far as there is one."""
    if not history:
        return {}
    try:
        found = json.loads((RunFolder(directory).version(history[-1].round) / "manifest.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _journal(directory: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Each device's board, and its examples times epochs."""
    try:
        with closing(JournalReader(RunFolder(directory).journal)) as reader:
            return {name: _board(profile) for name, _, profile, _ in reader.devices()}, reader.worked()
    except (EdgeError, OSError, sqlite3.Error):
        return {}, {}


def _board(profile: str) -> str:
    """The machine that a device said it is."""
    try:
        told = json.loads(profile)
    except ValueError:
        return ""
    return str(told.get("machine") or told.get("processor") or "") if isinstance(told, dict) else ""
