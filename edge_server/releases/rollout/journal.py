"""The rollouts in the registry's database; each change is on disk before any message that follows from it.

Which devices were asked, and when, is not stored: a resumed rollout asks again, and devices report again.
"""

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from edge_server.releases.rollout.state import OVER, Offering, Rollout, RolloutPhase, RolloutRules, TierFile
from edge_server.releases.rollout.target import Target, TargetStatus
from schemas.errors import ConfigError


@dataclass(frozen=True)
class RolloutEntry:
    """A rollout in the list of rollouts."""

    id: str
    version: str
    federation: str
    phase: RolloutPhase

    @property
    def over(self) -> bool:
        return self.phase in OVER


def new_id(version: str) -> str:
    """A new rollout's id, which devices tell apart from earlier rollouts of the same version."""
    return f"{version[:55]}-{secrets.token_hex(4)}"


class RolloutDatabase(Protocol):
    """Where rollouts are stored: a registry of models, or the releases of the client."""

    folder: Path

    def database(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A connection for one transaction, which is on disk at the end of the block."""


class RolloutJournal:
    def __init__(self, registry: RolloutDatabase) -> None:
        self._registry = registry

    def newest(self, federation: str) -> list[RolloutEntry]:
        """All rollouts of a federation, the newest first."""
        with self._registry.database() as database:
            rows = database.execute(
                "SELECT rollout, version, federation, phase FROM rollouts WHERE federation = ?"
                " ORDER BY began_at DESC, rowid DESC",
                (federation,),
            ).fetchall()
        return [RolloutEntry(id, version, of, RolloutPhase(phase)) for id, version, of, phase in rows]

    def begin(self, rollout: Rollout) -> None:
        with self._registry.database() as database:
            database.execute(
                "INSERT INTO rollouts VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)",
                (
                    rollout.id,
                    rollout.version,
                    rollout.federation,
                    rollout.rules.model_dump_json(),
                    rollout.phase,
                    rollout.opened,
                    rollout.why,
                    time.time(),
                ),
            )
            _write_targets(database, rollout, rollout.targets)

    def save(self, before: Rollout, after: Rollout) -> None:
        """Store what has changed in a rollout, if anything."""
        changed = {
            name: target
            for name, target in after.targets.items()
            if name not in before.targets or _lasting(before.targets[name]) != _lasting(target)
        }
        moved = (before.phase, before.opened, before.why) != (after.phase, after.opened, after.why)
        if not changed and not moved:
            return
        with self._registry.database() as database:
            database.execute(
                "UPDATE rollouts SET phase = ?, opened = ?, why = ?, ended_at = ? WHERE rollout = ?",
                (after.phase, after.opened, after.why, time.time() if after.over else None, after.id),
            )
            _write_targets(database, after, changed)

    def load_rollout(
        self, rollout: str, files: Mapping[int, TierFile], *, now: float, offering: Offering
    ) -> Rollout:
        """Load a rollout; the deadlines of its devices start again."""
        with self._registry.database() as database:
            row = database.execute(
                "SELECT version, federation, rules, phase, opened, why FROM rollouts WHERE rollout = ?",
                (rollout,),
            ).fetchone()
            targets = database.execute(
                "SELECT device, tier, batch, status, report FROM targets WHERE rollout = ?", (rollout,)
            ).fetchall()
        try:
            rules = RolloutRules.model_validate_json(row[2])
            return Rollout(
                id=rollout,
                version=row[0],
                federation=row[1],
                rules=rules,
                files=files,
                phase=RolloutPhase(row[3]),
                opened=row[4],
                why=row[5],
                targets={target[0]: _target(target, rules, now, offering) for target in targets},
                stop_until=now + rules.silent_s,
                offering=offering,
            )
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"rollout {rollout} was not written by this program",
                place=f"registry {self._registry.folder}",
            ) from error


def _lasting(target: Target) -> tuple[object, ...]:
    return (target.tier, target.group, target.status, target.report)


def _write_targets(database: sqlite3.Connection, rollout: Rollout, targets: Mapping[str, Target]) -> None:
    now = time.time()
    database.executemany(
        "INSERT OR REPLACE INTO targets VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (
                rollout.id,
                target.device,
                target.tier,
                target.group,
                target.status,
                None if target.report is None else target.report.model_dump_json(),
                now,
            )
            for target in targets.values()
        ],
    )


def _target(
    row: tuple[str, int, int, str, str | None], rules: RolloutRules, now: float, offering: Offering
) -> Target:
    device, tier, group, status, report = row
    there = TargetStatus(status)
    last = None if report is None else offering.reports.model_validate_json(report)
    return Target(device, tier, group, there, last, deadline=now + rules.patience_s(there))
