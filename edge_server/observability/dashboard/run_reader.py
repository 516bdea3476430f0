"""What a run's folder says, read and never written; whatever is not there yet is left out."""

from __future__ import annotations

import contextlib
import fcntl
import sqlite3
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from edge_server.config.config import Config
from edge_server.observability.dashboard.journal_file import opened_journal
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.values import CapabilityProfile, DataCard

T = TypeVar("T")
NOT_TRAINED = ("running_mean", "running_var")
"""Of a network's arrays those that no gradient reaches."""


@dataclass(frozen=True)
class KnownDevice:
    """A device as the journal has it; `seen_at` is the last planning that it was there at."""

    device: str
    profile: CapabilityProfile
    examples: int
    seen_at: float


@dataclass(frozen=True)
class Planning:
    """The newest planning: who was asked, who was there with which tier, who has been examined since.

    `examined` holds each device's last word of the firewall: None for accepted, else the reason.
    """

    round: int
    selected: frozenset[str]
    tiers: Mapping[str, int]
    planned_at: float
    examined: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderFacts:
    """A run folder at one moment; `parameters` are those of the full network, `onnx` bytes by tier.

    `traffic` are the counts of `Tally.traffic` after the last closed round. `at_work`: as far as the folder
    tells, some process goes on with the run.
    """

    path: Path
    at_work: bool = True
    config: Config | None = None
    history: tuple[RoundRecord, ...] = ()
    summary: Summary | None = None
    run: str | None = None
    began_at: float | None = None
    known: Mapping[str, KnownDevice] = field(default_factory=dict)
    planning: Planning | None = None
    refused: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    traffic: Mapping[str, Any] = field(default_factory=dict)
    channels: ChannelMap | None = None
    parameters: int | None = None
    onnx: Mapping[int, int] = field(default_factory=dict)

    @property
    def closed(self) -> int:
        """The last closed round."""
        return self.history[-1].round if self.history else 0

    @property
    def under_way(self) -> Planning | None:
        """The planning of the round that is open, if one is."""
        planning = self.planning
        is_open = planning is not None and planning.round > self.closed and self.summary is None
        return planning if is_open else None


def read_facts(path: Path, *, live: bool = False) -> FolderFacts:
    """Read a run folder; `live` says that this very process writes it. Raises `ConfigError` for none."""
    folder = RunFolder(path)
    channels = _channels(folder)
    at_work = live or is_at_work(path)
    facts = FolderFacts(
        path=path,
        at_work=at_work,
        config=read_config(path / "federation.toml"),
        history=_history(path / "history.jsonl"),
        # A run that goes on has one of before it was interrupted, if any.
        summary=None if live else _read(path / "summary.json", Summary.model_validate_json),
        channels=channels,
        parameters=None if channels is None else parameters_of(channels),
        onnx=_onnx(folder),
    )
    return _with_journal(facts, folder.journal, live=at_work)


def is_at_work(path: Path) -> bool:
    """Whether a run may be going on in another process: it has no end yet, and no server's lock is free."""
    if RunFolder(path).ended:
        return False
    try:
        with (path / "lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return True  # simulations have no lock: nobody can tell
    return False


def read_config(path: Path) -> Config | None:
    """The federation file as resolved, which was checked when the run began: nothing is imported for it."""
    return _read(path, lambda text: Config.model_validate(tomllib.loads(text), by_alias=True, by_name=False))


def newest_version(folder: RunFolder) -> Path | None:
    """The folder of the newest whole model."""
    found = (folder.path / "models").glob("round-*/manifest.json")
    return max((one.parent for one in found), key=lambda one: int(one.name.split("-")[1]), default=None)


def parameters_of(channels: ChannelMap) -> int:
    """Trainable numbers of the full network."""
    shapes = {name: layout.shape for name, layout in channels.parameters.items()}
    return count_parameters(shapes)


def count_parameters(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Trainable numbers in arrays of these shapes."""
    total = 0
    for name, shape in shapes.items():
        if not name.endswith(NOT_TRAINED):
            size = 1
            for length in shape:
                size *= length
            total += size
    return total


def _read(path: Path, parse: Callable[[str], T]) -> T | None:
    """A file that may be missing, or may just be written by an earlier version; None then."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ConfigError(f"{path}: cannot be read: {what}") from error


def _history(path: Path) -> tuple[RoundRecord, ...]:
    """The whole lines: the last one may just be on its way."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return ()
    try:
        return tuple(RoundRecord.model_validate_json(line) for line in lines if line.strip())
    except ValidationError as error:
        raise ConfigError(f"{path}: not a history: {error.errors()[0]['msg']}") from error


def _channels(folder: RunFolder) -> ChannelMap | None:
    version = newest_version(folder)
    if version is None:
        return None
    with contextlib.suppress(ConfigError):  # older versions go while a run goes on
        return _read(version / "channel-map.json", ChannelMap.model_validate_json)
    return None


def _onnx(folder: RunFolder) -> dict[int, int]:
    files = (folder.path / "onnx").glob("tier-*.onnx")
    numbered = {one.stem.removeprefix("tier-"): one for one in files}
    return {int(tier): one.stat().st_size for tier, one in sorted(numbered.items()) if tier.isdigit()}


def _with_journal(facts: FolderFacts, path: Path, *, live: bool) -> FolderFacts:
    if not path.exists():
        return facts
    try:
        with opened_journal(path, live=live) as reader:
            return _told(facts, reader)
    except sqlite3.OperationalError as error:
        if not live:
            raise ConfigError(f"{path}: cannot be read: {error}") from error
        return facts  # just being made, or busy: the next look will see it


def _told(facts: FolderFacts, reader: JournalReader) -> FolderFacts:
    return replace(
        facts,
        run=reader.run(),
        began_at=reader.began_at(),
        known={told[0]: _known(*told) for told in reader.seen()},
        planning=_planning(reader),
        refused=reader.refusals(),
        traffic=reader.traffic(),
    )


def _known(name: str, profile: str, data: str, seen_at: float) -> KnownDevice:
    card = DataCard.model_validate_json(data)
    return KnownDevice(name, CapabilityProfile.model_validate_json(profile), card.examples, seen_at)


def _planning(reader: JournalReader) -> Planning | None:
    last = reader.last_planning()
    if last is None:
        return None
    tiers = {name: tier for name, (tier, _) in last.clients.items()}
    selected, examined = frozenset(last.selected), reader.verdicts(last.attempt)
    return Planning(last.round, selected, tiers, last.planned_at, examined)
