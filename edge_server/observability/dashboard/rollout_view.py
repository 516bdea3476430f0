"""The JSON value of the rollouts of a run's models, read from the registry."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.data.tasks.words import figure_text
from edge_server.observability.dashboard.run_reader import open_unchanged
from edge_server.observability.dashboard.run_view import Json
from edge_server.releases.registry.registry import FILE
from schemas.errors import ConfigError
from schemas.messages import ModelReport
from schemas.messages.rollout import ModelMeasurement

MAX_ROLLOUTS = 50
ROLLOUTS = """
SELECT rollout, rollouts.version, rollouts.federation, phase, opened, why, began_at, ended_at,
        active.version IS NOT NULL
    FROM rollouts JOIN versions ON versions.version = rollouts.version
    LEFT JOIN active ON active.version = rollouts.version
    WHERE versions.run = ? ORDER BY began_at DESC, rollouts.rowid DESC LIMIT ?
"""
EVERY_ROLLOUT = ROLLOUTS.replace("WHERE versions.run = ?", "")
OF_DEVICE = """
SELECT rollouts.rollout, rollouts.version, rollouts.phase, targets.status, targets.report, targets.at
    FROM targets JOIN rollouts USING (rollout)
    WHERE rollouts.federation = ? AND targets.device = ? ORDER BY began_at DESC, rollouts.rowid DESC LIMIT ?
"""
TARGETS = "SELECT status, count(*) FROM targets WHERE rollout = ? GROUP BY status ORDER BY status"
GROUPS = "SELECT coalesce(max(batch) + 1, 0) FROM targets WHERE rollout = ?"


def rollouts_value(registry: Path, run: str | None) -> Json:
    """The value of `/api/rollouts`: rollouts of this run's versions, the newest first.

    Raises `ConfigError` for an unreadable registry.
    """
    if run is None:
        return {"rollouts": []}
    return _read(registry, ROLLOUTS, run, MAX_ROLLOUTS)


def every_rollout(registry: Path) -> Json:
    """The newest rollouts of all versions in a registry. Raises `ConfigError` for an unreadable registry."""
    return _read(registry, EVERY_ROLLOUT, MAX_ROLLOUTS)


def device_rollouts(registry: Path, federation: str, device: str) -> list[Json]:
    """The newest rollouts that reached a device, with what it has measured of both models.

    Raises `ConfigError` for an unreadable registry.
    """
    with _reading(registry) as database:
        if database is None:
            return []
        return [_of_device(*row) for row in database.execute(OF_DEVICE, (federation, device, MAX_ROLLOUTS))]


def _of_device(rollout: str, version: str, phase: str, status: str, text: str | None, at: float) -> Json:
    report = None
    with suppress(ValidationError):
        report = None if text is None else ModelReport.model_validate_json(text)
    return {
        "id": rollout,
        "version": version,
        "phase": phase,
        "status": status,
        "at": at,
        "before": _measurement_text(report.running if report else None),
        "after": _measurement_text(report.candidate if report else None),
        "why": report.detail or report.cause or "" if report else "",
    }


def _measurement_text(measurement: ModelMeasurement | None) -> str:
    """A model on the device's own examples in words, empty if it was not measured."""
    if measurement is None:
        return ""
    figures = figure_text(measurement.metrics, "-")
    return f"{figures} of {measurement.examples} examples, {measurement.latency_ms:.3g} ms"


def _read(registry: Path, query: str, *values: Any) -> Json:
    with _reading(registry) as database:
        rows = [] if database is None else database.execute(query, values).fetchall()
        return {"rollouts": [_value(database, *row) for row in rows if database is not None]}


@contextmanager
def _reading(registry: Path) -> Iterator[sqlite3.Connection | None]:
    """The registry's database, opened without changing it, if there is one; raises `ConfigError`."""
    path = registry / FILE
    if not path.is_file():
        yield None
        return
    try:
        with open_unchanged(path) as (readable, immutable):
            address = f"{readable.resolve().as_uri()}?mode={'ro&immutable=1' if immutable else 'rw'}"
            with closing(sqlite3.connect(address, uri=True)) as database:
                yield database
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(str(error), place=f"registry {registry}") from error


def _value(database: sqlite3.Connection, rollout: str, version: str, *rest: Any) -> Json:
    federation, phase, opened, why, began_at, ended_at, active = rest
    (groups,) = database.execute(GROUPS, (rollout,)).fetchone()
    return {
        "id": rollout,
        "version": version,
        "federation": federation,
        "active": bool(active),
        "phase": phase,
        "opened": opened,
        "groups": groups,
        "devices": dict(database.execute(TARGETS, (rollout,)).fetchall()),
        "why": why,
        "began_at": began_at,
        "ended_at": ended_at,
    }
