"""The folder of a fleet service: settings, inventory, jobs, people, alerts, audit log, runs, models."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from schemas.errors import ConfigError

RUNS = Path("runs")


def run_folder(out: Path | None, federation: str) -> Path:
    """The folder that the user names, or one named by federation and time."""
    return out or RUNS / run_name(federation)


def run_name(federation: str) -> str:
    """The name of a run that starts now: the federation and the time (UTC)."""
    return f"{federation[:40]}-{datetime.now(UTC):%Y%m%d-%H%M%S}"


def is_locked(path: Path, *, unreadable: bool = False) -> bool:
    """Whether a process holds the lock of this file; `unreadable` if it is not there, or cannot be opened."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return unreadable
    return False


VARIABLE = "EDGE_SERVICE"  # Environment variable that names the folder of commands without `--service`


class ServiceFolder:
    """The paths in the folder of `edge-server serve`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = path / "service.toml"  # the operator writes it
        self.inventory = path / "inventory.sqlite"
        self.jobs = path / "jobs.sqlite"
        self.people = path / "people.sqlite"  # users, sessions and tokens
        self.alerts = path / "alerts.sqlite"  # open alerts, and notifications that are not delivered
        self.audit = path / "audit.jsonl"
        self.runs = path / "runs"  # of jobs
        self.registry = path / "registry"  # of model versions
        self.releases = path / "releases"  # of the client

    def is_served(self) -> bool:
        lock = self.path / "lock"
        try:
            # Only a process of that number may hold the lock; otherwise a look must not disturb a start.
            os.kill(int(lock.read_text()), 0)
        except PermissionError:
            return True
        except (OSError, ValueError):
            return False
        return is_locked(lock)

    @contextlib.contextmanager
    def lock_folder(self) -> Iterator[None]:
        """Hold the folder; raises `ConfigError` while another service runs in it."""
        with (self.path / "lock").open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise ConfigError(
                    f"a service runs in this folder (process {file.read().strip() or '?'})",
                    place=self.path,
                    remedy="stop it first, or name another folder",
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
    if not folder.path.is_dir() or (folder.path / "history.jsonl").exists():
        raise ConfigError(
            f"{folder.path}: there is no service folder",
            remedy=f"`edge-server serve DIR` makes one, and --service DIR or ${VARIABLE} names it",
        )
    return folder
