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
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from edge_server.releases.database import ROLLOUT_TABLES, open_database
from edge_server.releases.registry.version import Version
from schemas.errors import ConfigError, nearest

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
