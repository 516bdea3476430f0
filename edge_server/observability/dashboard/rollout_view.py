"""The JSON value of the rollouts of a run's models, read from the registry."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edge_client.data.tasks.words import figure_text
from edge_server.config.units import number_text
from edge_server.observability.dashboard.run_reader import open_unchanged
from edge_server.observability.dashboard.run_view import Json
from edge_server.releases.registry.registry import FILE
from schemas.errors import ConfigError
from schemas.messages import ModelReport
from schemas.messages.rollout import ModelMeasurement

MAX_ROLLOUTS = 50
ROLLOUTS = """
SELECT rollout AS id, rollouts.version AS version, rollouts.federation AS federation, phase, opened, why,
        began_at, ended_at, active.version IS NOT NULL AS active
    FROM rollouts JOIN versions ON versions.version = rollouts.version
    LEFT JOIN active ON active.version = rollouts.version
    WHERE versions.run = ? ORDER BY began_at DESC, rollouts.rowid DESC LIMIT ?
"""
EVERY_ROLLOUT = ROLLOUTS.replace("WHERE versions.run = ?", "")
OF_DEVICE = """
SELECT rollouts.rollout AS id, rollouts.version AS version, rollouts.phase AS phase, targets.status AS status,
        targets.at AS at, targets.report AS report
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
        found = database.execute(OF_DEVICE, (federation, device, MAX_ROLLOUTS))
        return [_of_device(**row) for row in found]


def _of_device(report: str | None, **shown: Any) -> Json:
    said = None
    with suppress(ValidationError):
        said = None if report is None else ModelReport.model_validate_json(report)
    return {
        **shown,
        "before": _measurement_text(said.running if said else None),
        "after": _measurement_text(said.candidate if said else None),
        "why": said.detail or said.cause or "" if said else "",
    }


def _measurement_text(measurement: ModelMeasurement | None) -> str:
    """A model on the device's own examples in words, empty if it was not measured."""
    if measurement is None:
        return ""
    figures = figure_text(measurement.metrics, "-")
    return f"{figures} of {measurement.examples} examples, {number_text(measurement.latency_ms)} ms"


def _read(registry: Path, query: str, *values: Any) -> Json:
    with _reading(registry) as database:
        rows = [] if database is None else database.execute(query, values).fetchall()
        return {"rollouts": [_value(database, row) for row in rows if database is not None]}


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
                database.row_factory = sqlite3.Row
                yield database
    except (sqlite3.Error, OSError) as error:
        raise ConfigError(str(error), place=f"registry {registry}") from error


def _value(database: sqlite3.Connection, row: sqlite3.Row) -> Json:
    (groups,) = database.execute(GROUPS, (row["id"],)).fetchone()
    devices = dict(database.execute(TARGETS, (row["id"],)).fetchall())
    return {**dict(row), "active": bool(row["active"]), "groups": groups, "devices": devices}
