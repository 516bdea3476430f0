"""The run folder that is followed: each change becomes an entry whose blobs stay until they are taken."""

import hashlib
import os
import shutil
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.standby.following import Entry
from edge_server.coordinator.standby.standby_status import StandbyStatus
from edge_server.storage.journal import Journal
from edge_server.storage.sqlite_file import Changes
from schemas.messages import StandbyReport
from schemas.tensors.chunks import CHUNK_BYTES, BlobRef

# A standby as the server knows it: pure functions of its reports and the time.

SILENT_S = 4.0  # Seconds without a message after which the server goes on without the standby
STUCK_S = 20.0
"""Seconds without progress after which the server goes on without a standby that is not up to date."""
NEARLY = 16  # Number of missing entries up to which the server waits for its standby


@dataclass(frozen=True)
class KnownStandby:
    """A standby that follows a series of entries.

    `heard_at` and `moved_at` are the times of its last message and of its last progress. It has heard of the
    entries up to `known`, and has stored those up to `confirmed`. `named`: it may take over. `leaving`: the
    server goes on without it as soon as the lease no longer names it.
    """

    standby: str
    origin: str
    series: str
    heard_at: float
    moved_at: float
    known: int = 0
    confirmed: int = 0
    named: bool = False
    leaving: bool = False

    def with_report(self, report: StandbyReport, now: float) -> "KnownStandby":
        """The standby after a report on its series."""
        return replace(
            self,
            heard_at=now,
            moved_at=now if report.confirmed > self.confirmed else self.moved_at,
            known=min(report.known, self.known),
            confirmed=max(report.confirmed, self.confirmed),
        )

    def begun_again(self, now: float) -> "KnownStandby":
        """The standby after a report on another series: every entry is to be announced again."""
        return replace(self, heard_at=now, known=0)

    def fetching(self, now: float) -> "KnownStandby":
        """The standby after a request for chunks."""
        return replace(self, heard_at=now, moved_at=now)

    def is_lost(self, newest: int, now: float) -> bool:
        """Whether it is silent, or stuck before the `newest` entry."""
        stuck = newest > self.confirmed and now >= self.moved_at + STUCK_S
        return stuck or now >= self.heard_at + SILENT_S

    def is_replaceable(self, now: float) -> bool:
        """Whether it has been silent for so long that another process may follow in its place."""
        return now >= self.heard_at + SILENT_S / 2

    def catches_up(self, newest: int) -> bool:
        """Whether it is nearly up to date, but cannot take over yet."""
        return not self.named and self.confirmed > 0 and newest - self.confirmed <= NEARLY

    def status(self, *, follows: bool) -> StandbyStatus:
        return StandbyStatus(standby=self.standby, origin=self.origin, follows=follows)


# What a server says waits until its standby has what it follows from.

Action = Callable[[], None]


class OutputGate:
    """Holds back actions until the entry that was the newest when they were asked for is confirmed, in order.

    `newest` returns that entry's number. An open gate holds nothing back.
    """

    def __init__(self, newest: Callable[[], int]) -> None:
        self._newest = newest
        self._waiting: deque[tuple[int, Action]] = deque()
        self._confirmed = 0
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def __call__(self, action: Action) -> None:
        """Do it now or later."""
        if not self.closed:
            action()
            return
        self._waiting.append((self._newest(), action))
        self.confirm(self._confirmed)

    def confirm(self, number: int) -> None:
        """Entries up to this number are in the copy."""
        self._confirmed = number
        while self._waiting and self._waiting[0][0] <= number:
            self._waiting.popleft()[1]()

    def open(self) -> None:
        """Hold nothing back from now on."""
        self.closed = False
        while self._waiting:
            self._waiting.popleft()[1]()
        self._confirmed = 0


FOLDER = "standby"  # The folder of blobs in transfer, inside the run folder
JOURNAL = "journal.sqlite"
SUFFIXES = frozenset({".toml", ".pub", ".json", ".safetensors"})
COPIED, FOLLOWED = "copied.json", "followed.json"
"""A run folder with the first is a copy, which no server may serve; with the second, it was one."""
EXCLUDED = frozenset({"summary.json", "report.json", "standby.json", COPIED, FOLLOWED})
MAX_COPIED_BYTES = 2**20  # Larger files are linked: they are replaced as a whole, never changed in place
Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Numbered:
    """An entry's number in its series, and its blob; `digests` are all that it needs."""

    number: int
    ref: BlobRef
    digests: frozenset[str]


class RunSource:
    """Makes the entries of one series, and calls `made` after each; usable from any thread."""

    def __init__(
        self,
        run: Path,
        journal: Journal,
        *,
        chunk_bytes: int = CHUNK_BYTES,
        made: Callable[[], None] = lambda: None,
    ) -> None:
        self._run, self._journal, self.chunk_bytes, self._made = run, journal, chunk_bytes, made
        shutil.rmtree(run / FOLDER, ignore_errors=True)
        self.store = BlobStore(run / FOLDER, durable=False)
        self._known: dict[str, tuple[Stamp, BlobRef]] = {}
        self._lock = threading.Lock()
        self._entries: dict[int, Numbered] = {}
        self._last = 0
        self._early: list[Changes] | None = []

    @property
    def last(self) -> int:
        return self._last

    def begin(self) -> None:
        """Make the first entry: the whole folder. No job may change the folder meanwhile."""
        copy = self.store.directory / ".journal"
        copy.unlink(missing_ok=True)
        self._journal.copy_to(copy, self._on_commit)
        journal = self._store_file(copy, move=True)
        with self._lock:
            self._add(Entry(journal=journal, files=self._store_changed_files()))
            early, self._early = self._early, None
            for changes in early or ():
                self._add(_entry(changes))

    def end(self) -> None:
        """Make no more entries, and forget all."""
        self._journal.copied_no_more()
        shutil.rmtree(self._run / FOLDER, ignore_errors=True)

    def after(self, number: int) -> list[Numbered]:
        """The entries after this number, in order."""
        with self._lock:
            return [self._entries[n] for n in sorted(self._entries) if n > number]

    def forget_taken(self, number: int) -> None:
        """The entries up to this number are in the copy: their blobs may go."""
        with self._lock:
            gone = [self._entries.pop(n) for n in sorted(self._entries) if n <= number]
            needed = {digest for entry in self._entries.values() for digest in entry.digests}
            for digest in {digest for entry in gone for digest in entry.digests} - needed:
                self.store.blob_path(digest).unlink(missing_ok=True)

    def _on_commit(self, changes: Changes) -> None:
        with self._lock:
            if self._early is not None:
                # The folder is being copied: its files are in the first entry.
                self._early.append(changes)
                return
            before = set(self._known)
            files = self._store_changed_files()
            self._add(_entry(changes, files=files, gone=tuple(sorted(before - set(self._known)))))

    def _add(self, entry: Entry) -> None:
        ref = self.store.put_blob(entry.model_dump_json().encode(), chunk_bytes=self.chunk_bytes)
        self._last += 1
        self._entries[self._last] = Numbered(self._last, ref, frozenset({ref.digest, *entry.blobs}))
        self._made()

    def _store_changed_files(self) -> dict[str, BlobRef]:
        """The files that are new or changed since the last look, stored; gone ones are forgotten."""
        changed: dict[str, BlobRef] = {}
        seen = set()
        for name, path in self._files():
            try:
                about = path.stat()
                if not about.st_size:
                    continue
                stamp = about.st_size, about.st_mtime_ns, about.st_ino
                known = self._known.get(name)
                if known is None or known[0] != stamp:
                    known = stamp, self._store_file(path)
                    changed[name] = known[1]
            except FileNotFoundError:
                continue
            self._known[name] = known
            seen.add(name)
        self._known = {name: known for name, known in self._known.items() if name in seen}
        return changed

    def _files(self) -> Iterator[tuple[str, Path]]:
        """Paths in the folder that a copy needs, by their names in it; empty files are left out."""
        for path in self._run.iterdir():
            if path.suffix in SUFFIXES and path.name not in EXCLUDED and path.name[0] != ".":
                yield path.name, path
        for folder in ("checkpoints", *(f"models/{path.name}" for path in self._run.glob("models/*"))):
            for path in (self._run / folder).glob("[!.]*"):
                if path.suffix in SUFFIXES:
                    yield f"{folder}/{path.name}", path
        with os.scandir(self._run / "blobs") as entries:
            for entry in entries:
                if len(entry.name) == 64:
                    yield f"blobs/{entry.name}", Path(entry.path)

    def _store_file(self, path: Path, *, move: bool = False) -> BlobRef:
        """The file as a blob: its bytes stay as they are now, whatever happens to the file."""
        aside = self.store.directory / ".aside"
        aside.unlink(missing_ok=True)
        if move:
            path.replace(aside)
        elif path.stat().st_size > MAX_COPIED_BYTES:
            link_or_copy(path, aside)
        else:
            shutil.copyfile(path, aside)
        with aside.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        ref = BlobRef(digest=digest, size=aside.stat().st_size, chunk_bytes=self.chunk_bytes)
        aside.replace(self.store.blob_path(digest))
        return ref


def link_or_copy(path: Path, target: Path) -> None:
    try:
        os.link(path, target)
    except OSError:
        shutil.copyfile(path, target)


def _entry(
    changes: Changes, *, files: Mapping[str, BlobRef] | None = None, gone: tuple[str, ...] = ()
) -> Entry:
    rows = tuple((statement, tuple(map(tuple, values))) for statement, values in changes)
    return Entry(files=files or {}, gone=gone, changes=rows)
