"""Resuming an interrupted simulation from its last closed round."""

import contextlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from edge_client.storage.atomic_files import write_synced
from edge_server.config.config import Config
from edge_server.config.differences import differences
from edge_server.observability.counters import RunCounters
from edge_server.observability.report.provenance_file import write_provenance
from edge_server.rounds.reputation import ReputationRules, Reputations, replay_strikes
from edge_server.rounds.state import Undone
from edge_server.simulation.round_checkpoint import Boundary, cut_history, read_boundary
from edge_server.storage.journal import UndoneRound
from edge_server.storage.journal_reader import ExaminedUpdate, JournalReader
from edge_server.storage.records import RoundRecord
from edge_server.storage.recovery import Resumption
from edge_server.storage.run_folder import RunFolder
from schemas.errors import ConfigError
from schemas.values import Feature

MAY_DIFFER = (
    "federation.rounds",
    "privacy.budget",
    "simulation.until-s",
    "federation.testers",
    "simulation.workers",
    "simulation.engine",
    "simulation.ray-address",
)
"""Settings that may differ in a resumed run: its length, and settings without influence on results."""


def open_folder(out: Path, config: Config, *, resume: bool) -> RunFolder:
    """The run folder at `out`; `ConfigError` if the run to resume is missing or configured otherwise."""
    remedy = "go on with it by --resume, "
    folder = _reopen(out, config) if resume else RunFolder.create(out, config, remedy=remedy)
    write_provenance(folder.path)
    return folder


def _reopen(out: Path, config: Config) -> RunFolder:
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


@dataclass(frozen=True)
class ResumedRun:
    """A run at its last closed round, with the journal's records up to it: later rounds are run again."""

    boundary: Boundary
    examined: tuple[ExaminedUpdate, ...]
    strikes: tuple[tuple[str, int, str], ...]
    undone_rounds: tuple[UndoneRound, ...]
    classes: tuple[str, ...]
    columns: tuple[Feature, ...] = ()
    untested: RoundRecord | None = None

    @property
    def resumption(self) -> Resumption:
        """What the coordinator resumes from."""
        closed = self.boundary.round
        pending = next((undone for undone in self.undone_rounds if undone.round == closed), None)
        return Resumption(
            closed,
            examined=self.examined,
            undone=pending,
            classes=self.classes,
            columns=self.columns,
            untested=self.untested,
        )

    @cached_property
    def reputations(self) -> Reputations:
        """Every device's strikes."""
        return replay_strikes(self.strikes, ReputationRules(after=0))

    @property
    def undone(self) -> tuple[Undone, ...]:
        """The undone rounds as the round machine knows them."""
        return tuple(Undone(row.round, row.attempt, row.left_out) for row in self.undone_rounds)


def restore(folder: RunFolder, tally: RunCounters) -> ResumedRun | None:
    """Restore history and counts of the last closed round; None if no round was closed."""
    boundary = read_boundary(folder.path, tally)
    closed = boundary.round if boundary else 0
    untested = _rebuild_history(folder, closed)
    for line in cut_history(folder.path / "history.jsonl", closed - (untested is not None)):
        tally.closed(RoundRecord.model_validate_json(line))
    if boundary is None:
        return None
    with contextlib.closing(JournalReader(folder.journal)) as reader:
        return ResumedRun(
            boundary,
            tuple(update for update in reader.examined() if update.round <= closed),
            tuple((strike.device, strike.round, strike.reason) for strike in reader.strikes()),
            tuple(row for row in reader.undone() if row.round <= closed),
            reader.classes(),
            reader.columns(),
            untested,
        )


def _rebuild_history(folder: RunFolder, closed: int) -> RoundRecord | None:
    """Rewrite the history from the journal if the journal is readable.

    Returns the record of the last `closed` round if its test has not ended.
    """
    if not folder.journal.exists():
        return None
    with contextlib.closing(JournalReader(folder.journal)) as reader, contextlib.suppress(ValueError):
        rounds = [(row, RoundRecord.model_validate_json(row.record)) for row in reader.rounds()]
        folder.rewrite_history([record for row, record in rounds if row.tested])
        return next((record for row, record in rounds if row.round == closed and not row.tested), None)
    return None
