"""The rollouts of a run's models as the page shows them, from the registry that the run entered them in."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from edge_server.observability.dashboard.run_view import Json
from edge_server.releases.registry.registry import FILE
from schemas.errors import ConfigError

MOST_ROLLOUTS = 50
ROLLOUTS = """
SELECT rollout, rollouts.version, phase, opened, why, began_at, ended_at, active.version IS NOT NULL
    FROM rollouts JOIN versions ON versions.version = rollouts.version
    LEFT JOIN active ON active.version = rollouts.version
    WHERE versions.run = ? ORDER BY began_at DESC, rollouts.rowid DESC LIMIT ?
"""
TARGETS = "SELECT status, count(*) FROM targets WHERE rollout = ? GROUP BY status ORDER BY status"
GROUPS = "SELECT coalesce(max(batch) + 1, 0) FROM targets WHERE rollout = ?"


def rollouts_value(registry: Path, run: str | None) -> Json:
    """What `/api/rollouts` says: those of versions that this run has made, the newest first.

    Raises `ConfigError` for a registry that cannot be read.
    """
    path = registry / FILE
    if run is None or not path.is_file():
        return {"rollouts": []}
    try:
        with _read_only(path) as database:
            rows = database.execute(ROLLOUTS, (run, MOST_ROLLOUTS)).fetchall()
            return {"rollouts": [_value(database, *row) for row in rows]}
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(f"registry {registry}: {error}") from error


def _value(database: sqlite3.Connection, rollout: str, version: str, *rest: Any) -> Json:
    phase, opened, why, began_at, ended_at, active = rest
    (groups,) = database.execute(GROUPS, (rollout,)).fetchone()
    return {
        "id": rollout,
        "version": version,
        "active": bool(active),
        "phase": phase,
        "opened": opened,
        "groups": groups,
        "devices": dict(database.execute(TARGETS, (rollout,)).fetchall()),
        "why": why,
        "began_at": began_at,
        "ended_at": ended_at,
    }


@contextmanager
def _read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """The registry's database, which stays as it is; while somebody writes to it, a copy."""
    beside = path.with_name(f"{path.name}-wal")
    if not beside.exists() or beside.stat().st_size == 0:
        address = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            yield connection
        return
    with tempfile.TemporaryDirectory(prefix="edge-dashboard-") as folder:
        for file in (path, beside):
            shutil.copyfile(file, Path(folder) / file.name)
        with closing(sqlite3.connect(Path(folder) / path.name)) as connection:
            yield connection
