"""Reading a run's journal, also while the run goes on; a table or column that is not there is empty."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas.errors import ConfigError


@dataclass(frozen=True)
class Examined:
    """An update that was accepted (no reason) or refused, with its norms as far as they were taken."""

    round: int
    device: str
    digest: str
    reason: str | None = None
    norms: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Strike:
    """A refusal that counts against a device."""

    device: str
    round: int
    reason: str


def read_examined(path: Path) -> list[Examined]:
    """Every update that was examined, in the order of that."""
    rows = _rows(path, "updates", ("round", "device", "digest", "reason", "norms"))
    return [
        Examined(number, device, digest, reason, json.loads(norms or "{}"))
        for number, device, digest, reason, norms in rows
    ]


def read_strikes(path: Path) -> list[Strike]:
    """Every strike, in order."""
    return [Strike(*row) for row in _rows(path, "strikes", ("device", "round", "reason"))]


def _rows(path: Path, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """The columns of a table in the order of its rows, None for a column that this journal lacks."""
    if not path.is_file():
        raise ConfigError(f"{path}: missing; is {path.parent} a run folder?")
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            there = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            if not there:
                return []
            wanted = ", ".join(name if name in there else f"NULL AS {name}" for name in columns)
            return connection.execute(f"SELECT {wanted} FROM {table} ORDER BY rowid").fetchall()
    except sqlite3.Error as error:
        raise ConfigError(f"{path}: not a journal that can be read: {error}") from error
