"""The rollouts in the registry's database: each change is on disk before any device is told of what follows.

Who was asked, and when, is not kept: a rollout that goes on asks again, and devices say again where they are.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.rules import RolloutRules
from edge_server.releases.rollout.state import OVER, Rollout, RolloutPhase, TierFile
from edge_server.releases.rollout.target import Target, TargetStatus
from schemas.errors import ConfigError
from schemas.messages import ModelReport


@dataclass(frozen=True)
class RolloutEntry:
    """A rollout as the list of them has it."""

    id: str
    version: str
    federation: str
    phase: RolloutPhase

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.phase in OVER


def new_id(version: str) -> str:
    """A name for a rollout that begins now; it tells its devices that this is another one."""
    return f"{version[:55]}-{secrets.token_hex(4)}"


class RolloutJournal:
    """The rollouts of one registry."""

    def __init__(self, registry: Registry) -> None:
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
        """Keep a new rollout."""
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
        """Keep what is new in a rollout; nothing is written where nothing is."""
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

    def load(self, rollout: str, files: Mapping[int, TierFile], *, now: float) -> Rollout:
        """A rollout as it was left; its devices have all their time again."""
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
                targets={one[0]: _target(one, rules, now) for one in targets},
                stop_until=now + rules.silent_s,
            )
        except (ValidationError, ValueError) as error:
            raise ConfigError(
                f"registry {self._registry.folder}: rollout {rollout} is not as this program writes it"
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
                one.device,
                one.tier,
                one.group,
                one.status,
                None if one.report is None else one.report.model_dump_json(),
                now,
            )
            for one in targets.values()
        ],
    )


def _target(row: tuple[str, int, int, str, str | None], rules: RolloutRules, now: float) -> Target:
    device, tier, group, status, report = row
    there = TargetStatus(status)
    watched = rules.terms.watch_s + rules.silent_s
    return Target(
        device=device,
        tier=tier,
        group=group,
        status=there,
        report=None if report is None else ModelReport.model_validate_json(report),
        deadline=now + (watched if there is TargetStatus.WATCHING else rules.away_s),
    )
