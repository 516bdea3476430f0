"""What the registry says of models: which is approved, and what the last rollout has left on each device."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.releases.registry.registry import FILE
from edge_server.releases.rollout.target import TargetStatus


@dataclass(frozen=True)
class ModelVersions:
    """The federation's active version, if there is one, and the version that each device has kept."""

    approved: str | None = None
    kept: Mapping[str, str] = field(default_factory=dict)


def read_model_versions(registry: Path, federation: str) -> ModelVersions:
    """Look, and change nothing; empty where there is no registry yet, or it cannot be read now."""
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
