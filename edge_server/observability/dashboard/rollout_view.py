"""The JSON value of the rollouts of a run's models, read from the registry."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from edge_server.observability.dashboard.journal_file import unchanged
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
EVERY_ROLLOUT = ROLLOUTS.replace("WHERE versions.run = ?", "")
TARGETS = "SELECT status, count(*) FROM targets WHERE rollout = ? GROUP BY status ORDER BY status"
GROUPS = "SELECT coalesce(max(batch) + 1, 0) FROM targets WHERE rollout = ?"


def rollouts_value(registry: Path, run: str | None) -> Json:
    """The value of `/api/rollouts`: rollouts of this run's versions, the newest first.

    Raises `ConfigError` for an unreadable registry.
    """
    if run is None:
        return {"rollouts": []}
    return _read(registry, ROLLOUTS, run, MOST_ROLLOUTS)


def every_rollout(registry: Path) -> Json:
    """The newest rollouts of all versions in a registry. Raises `ConfigError` for an unreadable registry."""
    return _read(registry, EVERY_ROLLOUT, MOST_ROLLOUTS)


def _read(registry: Path, query: str, *values: Any) -> Json:
    path = registry / FILE
    if not path.is_file():
        return {"rollouts": []}
    try:
        with _read_only(path) as database:
            rows = database.execute(query, values).fetchall()
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
    """The registry's database, opened without changing it; a copy while another process writes to it."""
    with unchanged(path) as (readable, immutable):
        address = f"{readable.resolve().as_uri()}?mode={'ro&immutable=1' if immutable else 'rw'}"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            yield connection
