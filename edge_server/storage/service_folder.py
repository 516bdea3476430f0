"""The folder of a fleet service: settings, inventory, jobs, people, alerts, audit log, runs, models."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import ConfigError

VARIABLE = "EDGE_SERVICE"
"""Environment variable that names the folder of commands without `--service`."""


@dataclass(frozen=True)
class ServiceFolder:
    """The paths in the folder of `edge-server serve`."""

    path: Path

    @property
    def settings(self) -> Path:
        """`service.toml`, which the operator writes."""
        return self.path / "service.toml"

    @property
    def inventory(self) -> Path:
        """The devices, in SQLite."""
        return self.path / "inventory.sqlite"

    @property
    def jobs(self) -> Path:
        """The queue of jobs, in SQLite."""
        return self.path / "jobs.sqlite"

    @property
    def people(self) -> Path:
        """Users, sessions and tokens, in SQLite."""
        return self.path / "people.sqlite"

    @property
    def alerts(self) -> Path:
        """Open alerts and undelivered notifications, in SQLite."""
        return self.path / "alerts.sqlite"

    @property
    def audit(self) -> Path:
        """The audit log, a JSON object per line."""
        return self.path / "audit.jsonl"

    @property
    def runs(self) -> Path:
        """The run folders of jobs."""
        return self.path / "runs"

    @property
    def registry(self) -> Path:
        """The registry of model versions."""
        return self.path / "registry"

    @property
    def releases(self) -> Path:
        """The releases of the client."""
        return self.path / "releases"

    def is_served(self) -> bool:
        """Whether a service runs in the folder."""
        try:
            with (self.path / "lock").open() as file:
                # Only a process of that number may hold the lock; otherwise a look must not disturb a start.
                os.kill(int(file.read()), 0)
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except (OSError, ValueError):
            return False
        return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder; raises `ConfigError` while another service runs in it."""
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise ConfigError(
                    f"{self.path}: a service runs in this folder (process {file.read().strip() or '?'}); "
                    "stop it first, or name another folder"
                ) from None
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield


def named_service_folder(path: Path | None) -> ServiceFolder | None:
    """The folder that an option or `$EDGE_SERVICE` names; None without both."""
    named = path or os.environ.get(VARIABLE)
    return ServiceFolder(Path(named)) if named else None


def default_service_folder() -> Path:
    """The folder that `$EDGE_SERVICE` names, else the usual one of this user."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser() / "edge-federation" / "service"


def open_service_folder(path: Path | None) -> ServiceFolder:
    """The existing folder that the user names, or the default one; raises `ConfigError` if there is none."""
    folder = ServiceFolder(path or default_service_folder())
    if not folder.path.is_dir():
        raise ConfigError(
            f"{folder.path}: there is no service folder; `edge-server serve DIR` makes one, and "
            f"--service DIR or ${VARIABLE} names it"
        )
    return folder
