"""The registry on disk.

    registry.sqlite             the versions, which of them is active, the rollouts
    VERSION/README.md           the model card
    VERSION/tier-1.onnx ...     what devices serve, each with its signed manifest
    VERSION/signing.pub         the key that has signed them
    VERSION/model/              the global model: state, channel map, manifest

A version's folder is written under another name, renamed, and then entered: listed versions are complete.
"""

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from edge_server.releases.database import ROLLOUT_TABLES, open_database
from edge_server.storage.records import StartedFrom
from schemas.base import Digest, Frozen, Name
from schemas.errors import ConfigError, nearest
from schemas.values import Fraction, Metrics

# A version in the registry: its origin, the file of each tier, its signer.

Milliseconds = Annotated[float, Field(ge=0)]


class TierModel(Frozen):
    """One tier's ONNX file. `test_accuracy` and `test_metrics` are the server's, `devices` measured the means
    of the devices; metrics have all figures of the task, the leading one first.

    `devices_serving` of them serve it, the others kept their earlier model; None if unknown.
    `parent_sha256` is the state of the global model that it was cut from.
    """

    tier: int = Field(ge=1)
    ratio: float = Field(ge=0, lt=1)
    sha256: Digest
    bytes: int = Field(ge=1)
    parent_sha256: Digest | None = None
    spec_sha256: Digest | None = None
    parameters: int | None = None
    macs: int | None = None
    test_accuracy: Fraction | None = None
    test_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    devices: int = Field(default=0, ge=0)
    devices_serving: int | None = Field(default=None, ge=0)
    device_accuracy: Fraction | None = None
    device_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    device_latency_ms: Milliseconds | None = None


class Version(Frozen):
    """The result of a run: the global model after `round`, and a file for each tier.

    `state_sha256` is the global model's digest, `parents` those of earlier models, the nearest first. `key`
    is the fingerprint of the key that signed every tier's file; None if a file is not signed. `started_from`
    names the model that the run began with, unless it began with a new network. `created_at` is in seconds
    since 1970; `device_tiers` are the tiers that the run's devices trained last.
    """

    version: Name
    federation: Name
    run: Name
    round: int = Field(ge=0)
    rounds: int = Field(ge=0)
    outcome: str
    recipe: str | None = None
    model: str
    parameters: int
    state_sha256: Digest | None = None
    parents: tuple[Digest, ...] = ()
    key: Digest | None = None
    test_accuracy: Fraction | None = None
    test_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    epsilon: float | None = None
    delta: float | None = None
    created_at: float
    tiers: tuple[TierModel, ...]
    device_tiers: Mapping[Name, Annotated[int, Field(ge=1)]] = {}
    started_from: StartedFrom | None = None

    def tier(self, number: int) -> TierModel | None:
        return next((tier for tier in self.tiers if tier.tier == number), None)


FORMAT = 1
FILE = "registry.sqlite"
VERSION_TABLES = """
CREATE TABLE IF NOT EXISTS versions (
    version TEXT PRIMARY KEY, federation TEXT NOT NULL, run TEXT NOT NULL, round INTEGER NOT NULL,
    recipe TEXT, state_sha256 TEXT, key TEXT, test_accuracy REAL, created_at REAL NOT NULL,
    record TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS active (
    federation TEXT PRIMARY KEY, version TEXT NOT NULL REFERENCES versions, since REAL NOT NULL);
"""


class Registry:
    """The registry in a folder, made if missing; each method is a transaction."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def existing(cls, folder: Path) -> "Registry":
        """An existing registry; raises `ConfigError` if there is none."""
        if not (folder / FILE).is_file():
            raise ConfigError(
                f"there is no registry in {folder}: a run makes one next to its folder",
                remedy="name it with --registry DIR, or enter a run's models with `edge-server "
                "models add RUN`",
            )
        return cls(folder)

    def database(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A connection for one transaction, which is on disk at the end of the block."""
        schema = VERSION_TABLES + ROLLOUT_TABLES
        return open_database(self.folder / FILE, schema, version=FORMAT, what="registry")

    def version_path(self, version: str) -> Path:
        return self.folder / version

    def onnx(self, version: str, tier: int) -> Path:
        return self.version_path(version) / f"tier-{tier}.onnx"

    def enter(self, version: Version, fill: Callable[[Path], None]) -> None:
        """Enter a version, replacing one of that name; `fill` writes its files into a folder."""
        aside, place = self.folder / f".{version.version}.part", self.version_path(version.version)
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(aside)
        aside.mkdir(parents=True)
        fill(aside)
        with self.database() as database:
            database.execute("DELETE FROM versions WHERE version = ?", (version.version,))
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(place)
        aside.rename(place)
        with self.database() as database:
            database.execute(
                "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    version.version,
                    version.federation,
                    version.run,
                    version.round,
                    version.recipe,
                    version.state_sha256,
                    version.key,
                    version.test_accuracy,
                    version.created_at,
                    version.model_dump_json(),
                ),
            )

    def versions(self) -> list[Version]:
        """All versions, the newest first."""
        with self.database() as database:
            rows = database.execute(
                "SELECT record FROM versions ORDER BY created_at DESC, version"
            ).fetchall()
        return [self._read(record) for (record,) in rows]

    def version(self, name: str) -> Version:
        """The version of that name; raises `ConfigError` with the nearest name."""
        with self.database() as database:
            row = database.execute("SELECT record FROM versions WHERE version = ?", (name,)).fetchone()
            names = [version for (version,) in database.execute("SELECT version FROM versions").fetchall()]
        if row is None:
            raise ConfigError(f"there is no version '{name}' in {self.folder}{nearest(name, names)}")
        return self._read(row[0])

    def _read(self, record: str) -> Version:
        try:
            return Version.model_validate_json(record)
        except ValidationError as error:
            problem = f"{error.error_count()} fields were not written by this program"
            raise ConfigError(problem, place=f"registry {self.folder / FILE}") from error

    # --- the active version ---
    def active(self, federation: str) -> str | None:
        """The version that a federation's devices are meant to serve, if one is set."""
        return self.actives().get(federation)

    def actives(self) -> dict[str, str]:
        with self.database() as database:
            return dict(database.execute("SELECT federation, version FROM active").fetchall())

    def clear_active(self, version: Version) -> bool:
        """Make this version inactive; returns whether it was active."""
        with self.database() as database:
            row = (version.federation, version.version)
            gone = database.execute("DELETE FROM active WHERE federation = ? AND version = ?", row)
            return gone.rowcount > 0

    def set_active(self, version: Version) -> None:
        """Make this the version that its federation's devices are meant to serve."""
        with self.database() as database:
            row = (version.federation, version.version, time.time())
            database.execute("INSERT OR REPLACE INTO active VALUES (?, ?, ?)", row)
