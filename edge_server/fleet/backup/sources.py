"""What a backup saves: where each part lies, and where a restore puts it."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from edge_server.fleet.backup.collecting import is_run
from edge_server.fleet.backup.manifest import SavedRoot
from edge_server.fleet.queue.job import RUN
from edge_server.fleet.queue.journal import JobJournal
from schemas.errors import ConfigError

AUTHORITY, FILES, KEYS, REGISTRY = "authority", "files", "keys", "registry"


@dataclass(frozen=True)
class Sources:
    """The folder of a service; authorities, runs and their registries elsewhere; files with keys; others."""

    service: Path | None = None
    authorities: Sequence[Path] = ()
    runs: Sequence[Path] = ()
    registries: Sequence[Path] = ()
    keys: Sequence[Path] = ()
    files: Sequence[Path] = ()

    @property
    def sealed_folders(self) -> frozenset[Path]:
        """Folders inside the service's that are sealed as a whole: authorities, and restored keys."""
        if self.service is None:
            return frozenset()
        restored = [self.service.resolve() / name for name in (AUTHORITY, KEYS)]
        return frozenset([*restored, *(path.resolve() for path in self.authorities)])

    def roots(self) -> tuple[SavedRoot, ...]:
        """Where each of them goes; raises `ConfigError` for a missing one, and for two of one name."""
        roots = []
        if self.service is not None:
            roots.append(SavedRoot(kind="service", origin=str(self.service.resolve()), path=""))
        roots += [_root("authority", path, AUTHORITY) for path in self._outside(self.authorities)]
        roots += [_root("run", path, "runs") for path in self._outside(self.runs)]
        roots += [_root("registry", path, "runs", REGISTRY) for path in self._outside(self.registries)]
        for kind, paths, place in (("key", self.keys, KEYS), ("file", self.files, FILES)):
            outside = [path.resolve() for path in self._outside(paths)]
            roots += [_root(kind, path, place, str(path).lstrip("/")) for path in outside]
        if not roots:
            raise ConfigError(
                "nothing to back up", remedy="name a service's folder with --service, or runs with --run"
            )
        self._check(roots)
        return tuple(roots)

    def _outside(self, paths: Iterable[Path]) -> list[Path]:
        """Those that do not lie in the service's folder, and so are not saved with it."""
        inside = None if self.service is None else self.service.resolve()
        return [path for path in paths if inside is None or not path.resolve().is_relative_to(inside)]

    def _check(self, roots: Iterable[SavedRoot]) -> None:
        taken: dict[str, str] = {}
        for root in roots:
            other = taken.get(root.path)
            if other is None and self.service is not None and root.path:
                place = self.service / root.path
                other = str(place) if place.exists() else None
            if other is not None:
                raise ConfigError(
                    f"{other} and {root.origin} would both be {root.path} in the backup",
                    remedy="back up one of them into a file of its own",
                )
            taken[root.path] = root.origin


def sources_of(
    service: Path | None, authorities: Sequence[Path], runs: Sequence[Path], named: Iterable[Path] = ()
) -> Sources:
    """These folders and the `named` files with keys.

    With them the registries next to the runs, the federation files of jobs, and signing keys of both.
    """
    for path in runs:
        if not is_run(path):
            raise ConfigError("there is no journal; is it a run folder?", key=f"--run {path}")
    neighbours = dict.fromkeys(path.resolve().parent / REGISTRY for path in runs)
    registries = [path for path in neighbours if (path / f"{REGISTRY}.sqlite").is_file()]
    own = sorted((service / "runs").glob("*/federation.toml")) if service is not None else []
    jobs = [] if service is None else _files_of_jobs(service / "jobs.sqlite")
    stated = [*own, *jobs, *(path / "federation.toml" for path in runs)]
    signing = [key for key in map(_signing_key, stated) if key is not None]
    saved = [path.resolve() for path in (service, *authorities, *runs) if path is not None]
    keys = dict.fromkeys(path.resolve() for path in (*named, *signing))
    elsewhere = [path for path in keys if not any(path.is_relative_to(folder) for folder in saved)]
    return Sources(service, authorities, runs, registries, elsewhere, jobs)


def _files_of_jobs(queue: Path) -> list[Path]:
    if not queue.exists():
        return []
    with closing(JobJournal(queue)) as journal:
        jobs = journal.jobs().values()
    files = [Path(job.folder, job.words[0]) for job in jobs if job.action == RUN and job.words]
    return [path for path in dict.fromkeys(files) if path.is_file()]


def files_named_in(settings: BaseModel) -> Iterator[Path]:
    """The files that settings name: passwords, keys and certificates; those of processes are left out."""
    for name, value in settings:
        several = tuple(value.values()) if isinstance(value, Mapping) else value
        for item in several if isinstance(several, tuple) else (several,):
            if isinstance(item, BaseModel):
                yield from files_named_in(item)
            elif isinstance(item, Path) and not name.endswith("pid_file") and item.is_file():
                yield item


def _root(kind: str, path: Path, place: str, name: str = "") -> SavedRoot:
    origin = path.expanduser().resolve()
    if not origin.exists():
        raise ConfigError("there is nothing to back up", place=path, remedy="name an existing folder")
    return SavedRoot(kind=kind, origin=str(origin), path=f"{place}/{name or origin.name}")  # type: ignore[arg-type]


def _signing_key(federation: Path) -> Path | None:
    try:
        named = tomllib.loads(federation.read_text())["federation"]["signing-key"]
    except (OSError, ValueError, KeyError):
        return None
    return path if (path := Path(named).expanduser()).is_file() else None
