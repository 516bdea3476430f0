"""Collecting the files of a backup from folders that are in use.

A run that goes on is saved so that it can be resumed: its journal is copied first, then all its files get
second names (`Pins`), and then the living journal is read again. If no round was planned or closed meanwhile,
the files are those that the copy names, and perhaps newer ones that it does not name yet: the state in which
a kill between two writes leaves a run. Otherwise all is done again. Bytes are copied only after that.
"""

import contextlib
import os
import sqlite3
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from edge_server.fleet.backup import sealing, steady_files
from edge_server.fleet.backup.archive import ArchiveWriter
from edge_server.fleet.backup.manifest import SavedFile, SavedFolder, SavedLink
from schemas.errors import ConfigError

JOURNAL = "journal.sqlite"
MADE_AGAIN = frozenset({"disposal", "unpacked", "sums", "standby", "object-store"})
"""Folders of a run that its server makes again."""
LOCK = "lock"
TEMPORARY = (".part", ".spare", ".chunks", ".tmp", ".lock", *steady_files.COMPANIONS)
"""Ends of the names of files that are being written, or only locked."""
APPENDED = (".jsonl", ".log", ".log.1")
"""Ends of the names of files to which lines are appended: the whole lines that there are are saved."""
SECRET_SUFFIXES = frozenset({".key", ".secret", ".password", ".token"})
PRIVATE_KEY = b"PRIVATE KEY-----"
HEAD_BYTES = 4096
FIRST, LAST = ("jobs.sqlite",), ("audit.jsonl",)
"""A queue is saved before the runs that it names; the audit log after all that it tells of."""

TRIES = 20
REPORT_EVERY_BYTES = 2**30
Report = Callable[[str], None]
Pinned = list[tuple[str, Path, Path]]
"""Each file's path in the backup, its own path, and the one to read it from."""
PROGRESS_QUERIES = (
    "SELECT coalesce(max(attempt), 0) FROM plannings",
    "SELECT coalesce(max(round), 0) FROM rounds",
    "SELECT count(*) FROM undone",
    "SELECT count(*) FROM ends",
)


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run which a server has begun."""
    return (folder / JOURNAL).is_file()


def entries_of(folder: Path) -> Iterator[os.DirEntry[str]]:
    """What to save of a folder, in order: the queue, SQLite files, other files, folders, the audit log."""
    try:
        with os.scandir(folder) as scanned:
            entries = [entry for entry in scanned if not _is_left_out(entry.name, folder)]
    except FileNotFoundError:
        return
    yield from sorted(entries, key=_order)


def is_secret(path: Path) -> bool:
    """Whether a file holds a private key or a password, by its name or its content."""
    if path.suffix in SECRET_SUFFIXES:
        return True
    with path.open("rb") as file:
        return PRIVATE_KEY in file.read(HEAD_BYTES)


def _is_left_out(name: str, folder: Path) -> bool:
    if name == LOCK or name.startswith(steady_files.PINS) or name.endswith(TEMPORARY):
        return True
    return name in MADE_AGAIN and is_run(folder)


def _order(entry: os.DirEntry[str]) -> tuple[int, str]:
    if entry.name in FIRST:
        return 0, entry.name
    if entry.name in LAST:
        return 4, entry.name
    if entry.is_dir(follow_symlinks=False):
        return 3, entry.name
    return (1 if entry.name.endswith(".sqlite") else 2), entry.name


class Collector:
    """Stores folders in an archive, and notes what a restore needs to know of them.

    Without a `sealer` keys are left out. Folders in `sealed` hold keys. `work` is an empty folder for copies
    of SQLite files.
    """

    def __init__(
        self,
        archive: ArchiveWriter,
        sealer: sealing.Sealer | None,
        work: Path,
        report: Report,
        sealed: frozenset[Path] = frozenset(),
    ) -> None:
        self._archive, self._sealer, self._work, self._report = archive, sealer, work, report
        self._sealed = sealed
        self._bytes = 0
        self.files: list[SavedFile] = []
        self.folders: list[SavedFolder] = []
        self.links: list[SavedLink] = []
        self.left_out: list[str] = []

    def add_folder(self, folder: Path, path: str, *, secret: bool = False) -> None:
        """Store a folder with all below it at `path`, "" for the top; a `secret` one is sealed as a whole."""
        secret = secret or folder in self._sealed
        if secret and self._sealer is None:
            self.left_out.append(str(folder))
            return
        if is_run(folder):
            self._add_run(folder, path)
            return
        self._note_folder(folder, path)
        for entry in entries_of(folder):
            inner = _join(path, entry.name)
            if entry.is_symlink():
                self._add_link(Path(entry.path), inner)
            elif entry.is_dir():
                self.add_folder(Path(entry.path), inner, secret=secret)
            else:
                self.add_file(Path(entry.path), inner, secret=secret)

    def add_file(self, path: Path, inner: str, *, secret: bool = False) -> None:
        """Store a file, unless it is gone; raises `ConfigError` for one that never stands still."""
        for _ in range(TRIES):
            try:
                self._store(path, path, inner, secret=secret)
            except steady_files.FileChanged:
                continue
            except FileNotFoundError:
                pass
            return
        raise ConfigError(
            f"{path} is written all the time", remedy="move it out of the folder, or stop its writer"
        )

    def _add_run(self, run: Path, path: str) -> None:
        mark = [len(kept) for kept in self._lists()]
        for _ in range(TRIES):
            try:
                with self._pinned_run(run, path) as (journal, files):
                    private = _has_secret_noise(run)
                    self._store(journal, journal, _join(path, JOURNAL), as_it_is=True)
                    for inner, own, pinned in files:
                        self._store(own, pinned, inner, secret=private and _holds_noise(inner))
            except (steady_files.FileChanged, FileNotFoundError):
                for kept, length in zip(self._lists(), mark, strict=True):
                    del kept[length:]
                continue
            self._report(f"saved the run {run}")
            return
        raise ConfigError(
            "rounds follow each other faster than they can be saved", place=run, remedy="try again later"
        )

    def _lists(self) -> tuple[list[Any], ...]:
        return self.files, self.folders, self.links, self.left_out

    @contextmanager
    def _pinned_run(self, run: Path, path: str) -> Iterator[tuple[Path, Pinned]]:
        """A copy of the journal, and the files that belong to it; raises `FileChanged` if there are none."""
        journal, copy = run / JOURNAL, self._work / JOURNAL
        steady_files.copy_sqlite(journal, copy)
        with steady_files.Pins(run) as pins:
            files = list(self._pin(pins, run, path, journal))
            if progress_of(journal) != progress_of(copy):
                raise steady_files.FileChanged(journal)
            yield copy, files
        copy.unlink()

    def _pin(
        self, pins: steady_files.Pins, folder: Path, path: str, journal: Path
    ) -> Iterator[tuple[str, Path, Path]]:
        """Give the files below a folder second names, except the `journal`, which is copied already."""
        self._note_folder(folder, path)
        for entry in entries_of(folder):
            inner, own = _join(path, entry.name), Path(entry.path)
            if entry.is_symlink():
                self._add_link(own, inner)
            elif entry.is_dir():
                yield from self._pin(pins, own, inner, journal)
            elif own != journal:
                with contextlib.suppress(FileNotFoundError):
                    # A second name would not keep the bytes of a file that is written in place.
                    in_place = own.name.endswith(APPENDED) or steady_files.is_sqlite(own)
                    yield inner, own, own if in_place else pins.pin(own)

    def _store(
        self, own: Path, path: Path, inner: str, *, secret: bool = False, as_it_is: bool = False
    ) -> None:
        about = own.stat() if as_it_is else path.stat()
        if not stat.S_ISREG(about.st_mode):
            return
        sealed = secret or is_secret(path)
        if sealed and self._sealer is None:
            self.left_out.append(str(own))
            return
        if sealed and self._sealer is not None:
            digest, size = self._archive.store_sealed(self._sealer.close(path.read_bytes(), inner))
        elif not as_it_is and steady_files.is_sqlite(path):
            copy = self._work / "copy.sqlite"
            steady_files.copy_sqlite(path, copy)
            digest, size = self._archive.store_file(copy)
            copy.unlink()
        elif path.name.endswith(APPENDED):
            data = path.read_bytes()
            digest, size = self._archive.store_bytes(data[: data.rfind(b"\n") + 1], ".txt")
        else:
            digest, size = self._archive.store_file(path)
        mode = about.st_mode & 0o777
        self._note_file(
            SavedFile(path=inner, mode=mode, mtime=about.st_mtime_ns, size=size, digest=digest, sealed=sealed)
        )

    def _note_file(self, file: SavedFile) -> None:
        self.files.append(file)
        before, self._bytes = self._bytes, self._bytes + file.size
        if before // REPORT_EVERY_BYTES < self._bytes // REPORT_EVERY_BYTES:
            self._report(f"read {self._bytes / 2**30:.0f} GiB in {len(self.files)} files")

    def _add_link(self, link: Path, inner: str) -> None:
        """Note a link to a neighbour; other links are followed if they lead to a file."""
        target = str(link.readlink())
        parts = PurePosixPath(target).parts
        if not target.startswith("/") and ".." not in parts:
            self.links.append(SavedLink(path=inner, target=target))
        elif link.is_file():
            self.add_file(link, inner)
        else:
            self._report(f"left out {link}: a link to {target}, outside of its folder")

    def _note_folder(self, folder: Path, path: str) -> None:
        if path:
            self.folders.append(SavedFolder(path=path, mode=folder.stat().st_mode & 0o777))


def _join(path: str, name: str) -> str:
    return f"{path}/{name}" if path else name


def _has_secret_noise(run: Path) -> bool:
    """Whether a run's state holds the secret that noise is made from."""
    try:
        table = tomllib.loads((run / "federation.toml").read_text())
    except (OSError, ValueError):
        return False
    return bool(table.get("privacy", {}).get("mechanism", "none") != "none")


def _holds_noise(inner: str) -> bool:
    path = PurePosixPath(inner)
    return path.parent.name == "checkpoints" or path.name == "before.safetensors"


class RunProgress(NamedTuple):
    """The newest planning and closed round, the number of given-up rounds, whether the run is over.

    While it stays the same, a server changes no file that a resumption needs: it writes the files of the next
    step before its journal names them, and deletes old ones two steps later.
    """

    attempt: int
    round: int
    undone: int
    ends: int


def progress_of(journal: Path) -> RunProgress:
    """How far the run of a journal is; raises `ConfigError` for a damaged one."""
    try:
        with closing(steady_files.reading(journal)) as connection:
            connection.execute("BEGIN")
            return RunProgress(*(_count(connection, query) for query in PROGRESS_QUERIES))
    except sqlite3.Error as error:
        raise ConfigError(f"no journal that can be read: {error}", place=journal) from error


def _count(connection: sqlite3.Connection, query: str) -> int:
    try:
        return int(connection.execute(query).fetchone()[0])
    except sqlite3.OperationalError as error:
        # A journal that is being made has no tables.
        if "no such table" in str(error):
            return 0
        raise
