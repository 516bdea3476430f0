"""Model versions in the registry: the approved one, and the one that the last rollout left on each device."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.releases.registry.registry import FILE
from edge_server.releases.rollout.target import TargetStatus

REREAD_S = 5.0  # Seconds between two reads of the registry


@dataclass(frozen=True)
class ModelVersions:
    """The federation's active version, if any, and the version that each device has kept."""

    approved: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


def read_model_versions(registry: Path, federation: str) -> ModelVersions:
    """Read the registry; empty where there is none yet or it cannot be read."""
    file = registry / FILE
    if not file.is_file():
        return ModelVersions()
    try:
        with closing(sqlite3.connect(file, timeout=5)) as database:
            active = database.execute(
                "SELECT version FROM active WHERE federation = ?", (federation,)
            ).fetchone()
            kept = database.execute(
                "SELECT targets.device, rollouts.version FROM targets JOIN rollouts USING (rollout)"
                " WHERE rollouts.federation = ? AND targets.status = ? ORDER BY targets.at",
                (federation, TargetStatus.KEPT),
            ).fetchall()
    except sqlite3.Error:
        return ModelVersions()
    return ModelVersions(None if active is None else active[0], dict(kept))


class ModelVersionReader:
    """A federation's model versions, read again every `REREAD_S` seconds."""

    def __init__(self, registry: Path, federation: str) -> None:
        self._registry, self._federation = registry, federation
        self._versions, self._next_read = ModelVersions(), 0.0

    def current(self, now: float) -> ModelVersions:
        """The versions at `now` (monotonic seconds)."""
        if now >= self._next_read:
            self._next_read = now + REREAD_S
            self._versions = read_model_versions(self._registry, self._federation)
        return self._versions

    def expire(self) -> None:
        """Read the registry again at the next call of `current`."""
        self._next_read = 0.0
