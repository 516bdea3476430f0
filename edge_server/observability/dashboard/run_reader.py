"""The facts of a run folder; the folder is only read, and missing files leave their facts out."""

import contextlib
import math
import shutil
import sqlite3
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from edge_server.config.config import Config
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.records import RoundRecord, Summary
from edge_server.storage.run_folder import RunFolder
from edge_server.storage.service_folder import is_locked
from schemas.errors import ConfigError
from schemas.submodel import ChannelMap
from schemas.values import CapabilityProfile, DataCard

T = TypeVar("T")
NOT_TRAINED = ("running_mean", "running_var")  # Suffixes of a network's arrays that have no gradient


@dataclass(frozen=True)
class KnownDevice:
    """A device in the journal; `seen_at` is the time of the last planning at which it was connected."""

    device: str
    profile: CapabilityProfile
    data: DataCard
    seen_at: float


@dataclass(frozen=True)
class Planning:
    """The newest planning: the selected devices, and every connected device's tier.

    `examined` maps devices to the firewall's last verdict: None for accepted, else the reason.
    """

    round: int
    selected: frozenset[str]
    tiers: Mapping[str, int]
    planned_at: float
    examined: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class FolderFacts:
    """A run folder at one moment; `parameters` counts those of the full network, `onnx` is bytes by tier.

    `traffic` holds the counts of `RunCounters.traffic` after the last closed round. `at_work` says that some
    process may be running the federation.
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
    def last_closed(self) -> int:
        return self.history[-1].round if self.history else 0

    @property
    def under_way(self) -> Planning | None:
        """The planning of the round that is open, if one is."""
        planning = self.planning
        is_open = planning is not None and planning.round > self.last_closed and self.summary is None
        return planning if is_open else None


def read_facts(path: Path, *, live: bool = False) -> FolderFacts:
    """Read a run folder; `live` says that this process writes it. Raises `ConfigError` for a broken one."""
    folder = RunFolder(path)
    channels = _channels(folder)
    shapes = {name: layout.shape for name, layout in channels.parameters.items()} if channels else {}
    at_work = live or is_at_work(path)
    facts = FolderFacts(
        path=path,
        at_work=at_work,
        config=read_config(path / "federation.toml"),
        history=_history(path / "history.jsonl"),
        # The summary of a running federation, if any, is from before an interruption.
        summary=None if live else _read(path / "summary.json", Summary.model_validate_json),
        channels=channels,
        parameters=None if channels is None else count_parameters(shapes),
        onnx=_onnx(folder),
    )
    return _with_journal(facts, folder.journal, live=at_work)


def is_at_work(path: Path) -> bool:
    """Whether another process may be running it: the run has not ended and its lock is not free."""
    # Simulations have no lock, so that it cannot be ruled out.
    return not RunFolder(path).has_ended and is_locked(path / "lock", unreadable=True)


def read_config(path: Path) -> Config | None:
    """The resolved federation file, without the checks (and their imports) made when the run began."""

    def parse_config(text: str) -> Config:
        return Config.model_validate(tomllib.loads(text), by_alias=True, by_name=False)

    return _read(path, parse_config)


def newest_version(folder: RunFolder) -> Path | None:
    found = (folder.path / "models").glob("round-*/manifest.json")
    versions = (manifest.parent for manifest in found)
    return max(versions, key=lambda version: int(version.name.split("-")[1]), default=None)


def count_parameters(shapes: Mapping[str, tuple[int, ...]]) -> int:
    """Trainable parameters in arrays of these shapes."""
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.endswith(NOT_TRAINED))


def _read(path: Path, parse: Callable[[str], T]) -> T | None:
    """The parsed file; None where it is missing. Raises `ConfigError` for an unreadable one."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ConfigError(f"cannot be read: {what}", place=path) from error


def _history(path: Path) -> tuple[RoundRecord, ...]:
    """The complete lines: the last one may be half written."""
    try:
        lines = path.read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return ()
    try:
        return tuple(RoundRecord.model_validate_json(line) for line in lines if line.strip())
    except ValidationError as error:
        raise ConfigError(f"not a history: {error.errors()[0]['msg']}", place=path) from error


def _channels(folder: RunFolder) -> ChannelMap | None:
    version = newest_version(folder)
    if version is None:
        return None
    with contextlib.suppress(ConfigError):  # a running server removes older versions
        return _read(version / "channel-map.json", ChannelMap.model_validate_json)
    return None


def _onnx(folder: RunFolder) -> dict[int, int]:
    files = (folder.path / "onnx").glob("tier-*.onnx")
    by_tier = {file.stem.removeprefix("tier-"): file for file in files}
    return {int(tier): file.stat().st_size for tier, file in sorted(by_tier.items()) if tier.isdigit()}


def _with_journal(facts: FolderFacts, path: Path, *, live: bool) -> FolderFacts:
    if not path.exists():
        return facts
    try:
        with open_journal(path, live=live) as reader:
            return _with_rows(facts, reader)
    except sqlite3.OperationalError as error:
        if not live:
            raise ConfigError(f"cannot be read: {error}", place=path) from error
        return facts  # being created, or busy: the next read will see it


def _with_rows(facts: FolderFacts, reader: JournalReader) -> FolderFacts:
    return replace(
        facts,
        run=reader.run(),
        began_at=reader.began_at(),
        known={row[0]: _make_known_device(*row) for row in reader.seen_devices()},
        planning=_planning(reader),
        refused=reader.refusals(),
        traffic=reader.traffic(),
    )


def _make_known_device(name: str, profile: str, data: str, seen_at: float) -> KnownDevice:
    card = DataCard.model_validate_json(data)
    return KnownDevice(name, CapabilityProfile.model_validate_json(profile), card, seen_at)


def _planning(reader: JournalReader) -> Planning | None:
    last = reader.last_planning()
    if last is None:
        return None
    tiers = {name: tier for name, (tier, _) in last.clients.items()}
    selected, examined = frozenset(last.selected), reader.verdicts(last.attempt)
    return Planning(last.round, selected, tiers, last.planned_at, examined)


@contextlib.contextmanager
def open_journal(path: Path, *, live: bool) -> Iterator[JournalReader]:
    """Read a journal; `live` says that its writer may be running.

    SQLite's readers share an index file with the writer and would create that file without one. So a journal
    without a writer is opened as immutable, and one with the write-ahead log of a killed writer is copied
    first. Raises `ConfigError` where the journal is missing or has another format.
    """
    if live:
        try:
            reader = JournalReader(path)
        except ConfigError:
            live = False  # a read-only folder without a running writer
        else:
            with closing(reader):
                yield reader
            return
    with (
        open_unchanged(path) as (readable, immutable),
        closing(JournalReader(readable, immutable=immutable)) as reader,
    ):
        yield reader


@contextlib.contextmanager
def open_unchanged(path: Path) -> Iterator[tuple[Path, bool]]:
    """A SQLite file to read without changing `path`, and whether it is immutable.

    With a write-ahead log it is a copy, which is not immutable.
    """
    write_ahead_log = path.with_name(f"{path.name}-wal")
    if not write_ahead_log.exists() or write_ahead_log.stat().st_size == 0:
        yield path, True
        return
    with tempfile.TemporaryDirectory(prefix="edge-dashboard-") as folder:
        for file in (path, write_ahead_log):
            shutil.copyfile(file, Path(folder) / file.name)
        yield Path(folder) / path.name, False
