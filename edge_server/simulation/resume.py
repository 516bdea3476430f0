"""Resuming an interrupted simulation from its last closed round."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.config.load import differences
from edge_server.observability.counters import RunCounters
from edge_server.observability.report.contents import write_provenance
from edge_server.rounds.reputation import ReputationRules, Reputations, replay_strikes
from edge_server.rounds.state import Undone
from edge_server.simulation.device import DeviceState
from edge_server.simulation.population import Growth
from edge_server.storage import journal, records, recovery
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader
from edge_server.storage.run_folder import RunFolder
from schemas.base import Frozen, fields_of
from schemas.errors import ConfigError
from schemas.values import Feature

# The state of a synchronous simulation between two rounds.
#
# Every round starts from such a boundary, so a resumed run cannot differ from an uninterrupted one.

FILE = "checkpoint.json"


@dataclass(frozen=True)
class Boundary:
    """The state after round `round` was aggregated; times in virtual seconds."""

    run: str
    round: int
    attempt: int
    now: float
    devices: Mapping[str, DeviceState]


class _Written(Frozen):
    """The file's content; blobs are numbered, since many devices hold the same."""

    run: str
    round: int
    attempt: int
    now: float
    blobs: tuple[str, ...]
    devices: Mapping[str, tuple[int, float | None, tuple[int, ...]]]
    uplink: Mapping[str, int]
    downlink: Mapping[str, int]
    shared: Mapping[str, int] = {}
    growths: Mapping[str, Growth] = {}
    refusals: tuple[tuple[str | None, str, int], ...]


def write_boundary(folder: Path, boundary: Boundary, tally: RunCounters) -> None:
    """Write the checkpoint to the run folder, replacing the previous one."""
    held = {digest for state in boundary.devices.values() for digest in state.held}
    numbers = {digest: number for number, digest in enumerate(sorted(held))}
    written = _Written(
        **fields_of(boundary, "run", "round", "attempt", "now"),
        blobs=tuple(numbers),
        devices={
            name: (state.number, state.lost_at, tuple(sorted(numbers[digest] for digest in state.held)))
            for name, state in boundary.devices.items()
        },
        growths={name: state.growth for name, state in boundary.devices.items() if state.growth is not None},
        uplink=tally.uplink,
        downlink=tally.downlink,
        shared=tally.indirect.shared,
        refusals=tuple((device, reason, count) for (device, reason), count in tally.refusals.items()),
    )
    # Not synced, as the model and the state of the round are not.
    write_synced(folder / FILE, written.model_dump_json().encode(), durable=False)


def read_boundary(folder: Path, tally: RunCounters) -> Boundary | None:
    path = folder / FILE
    try:
        written = _Written.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise ConfigError(f"{path} is not a checkpoint of this version: {error}") from error
    tally.restore(fields_of(written, "uplink", "downlink", "shared", "refusals"), ())
    devices = {
        name: DeviceState(
            number, lost_at, frozenset(written.blobs[index] for index in held), written.growths.get(name)
        )
        for name, (number, lost_at, held) in written.devices.items()
    }
    return Boundary(written.run, written.round, written.attempt, written.now, devices)


def cut_history(path: Path, rounds: int) -> list[str]:
    """Cut a history to its first `rounds` lines, which the checkpoint covers; returns them."""
    lines = path.read_text().splitlines()
    kept = lines[:rounds]
    if len(kept) < rounds or any(json.loads(line)["round"] != n for n, line in enumerate(kept, start=1)):
        raise ConfigError(f"{path} does not hold the {rounds} rounds of its checkpoint")
    write_synced(path, "".join(f"{line}\n" for line in kept).encode())
    return kept


MAY_DIFFER = (
    "federation.rounds",
    "privacy.budget",
    "simulation.until-s",
    "federation.testers",
    "simulation.workers",
    "simulation.engine",
    "simulation.ray-address",
)  # Settings that may differ in a resumed run: its length, and settings without influence on results


def open_folder(out: Path, config: Config, *, resume: bool) -> RunFolder:
    """The run folder at `out`; `ConfigError` if the run to resume is missing or configured otherwise."""
    asks = config.federation.statistics or not config.federation.trains
    remedy = "" if asks or config.clients.mode == "buffered" else "continue it with --resume, "
    folder = _reopen(out, config) if resume else RunFolder.create(out, config, remedy=remedy)
    write_provenance(folder.path)
    return folder


def _reopen(out: Path, config: Config) -> RunFolder:
    path = out / "federation.toml"
    if not path.exists():
        raise ConfigError(f"there is no run in {out}", key="--resume")
    if config.clients.mode == "buffered":
        raise ConfigError("a run in buffered mode cannot continue from a checkpoint", key="--resume")
    for key, before, now in differences(path, config, MAY_DIFFER):
        raise ConfigError(
            f"{key} is {now!r}, the run in {out} has {before!r}",
            key="--resume",
            remedy=f"only {', '.join(MAY_DIFFER)} may differ",
        )
    write_synced(path, config.to_toml().encode())
    return RunFolder(out)


@dataclass(frozen=True)
class ResumedRun:
    """A run at its last closed round, with the journal's records up to it: later rounds are run again."""

    boundary: Boundary
    examined: tuple[ExaminedUpdate, ...]
    strikes: tuple[tuple[str, int, str], ...]
    undone_rounds: tuple[journal.UndoneRound, ...]
    classes: tuple[str, ...]
    columns: tuple[Feature, ...] = ()
    untested: records.RoundRecord | None = None

    @property
    def resumption(self) -> recovery.Resumption:
        closed = self.boundary.round
        pending = next((undone for undone in self.undone_rounds if undone.round == closed), None)
        as_written = fields_of(self, "examined", "classes", "columns", "untested")
        return recovery.Resumption(closed, undone=pending, **as_written)

    @cached_property
    def reputations(self) -> Reputations:
        return replay_strikes(self.strikes, ReputationRules(after=0))

    @property
    def undone(self) -> tuple[Undone, ...]:
        return tuple(Undone(row.round, row.attempt, row.left_out) for row in self.undone_rounds)


def restore(folder: RunFolder, tally: RunCounters) -> ResumedRun | None:
    """Restore history and counts of the last closed round; None if no round was closed."""
    boundary = read_boundary(folder.path, tally)
    closed = boundary.round if boundary else 0
    untested = _rebuild_history(folder, closed)
    for line in cut_history(folder.path / "history.jsonl", closed - (untested is not None)):
        tally.add_round(records.RoundRecord.model_validate_json(line))
    if boundary is None:
        return None
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        return ResumedRun(
            boundary,
            tuple(update for update in reader.examined_updates() if update.round <= closed),
            tuple((strike.device, strike.round, strike.reason) for strike in reader.strikes()),
            tuple(row for row in reader.undone() if row.round <= closed),
            reader.classes(),
            reader.columns(),
            untested,
        )


def _rebuild_history(folder: RunFolder, closed: int) -> records.RoundRecord | None:
    """Rewrite the history from the journal if the journal is readable.

    Returns the record of the last `closed` round if its test has not ended.
    """
    if not folder.journal.exists():
        return None
    with contextlib.closing(JournalReader(folder.journal)) as reader, contextlib.suppress(ValueError):
        rounds = [(row, records.RoundRecord.model_validate_json(row.record)) for row in reader.rounds()]
        folder.rewrite_history([record for row, record in rounds if row.tested])
        return next((record for row, record in rounds if row.round == closed and not row.tested), None)
    return None
