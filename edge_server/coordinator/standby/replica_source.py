"""The run folder that is followed: each change becomes an entry whose blobs stay until they are taken."""

import hashlib
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.standby.following import Entry
from edge_server.storage.journal import Journal
from edge_server.storage.sqlite_file import Changes
from schemas.tensors.chunks import CHUNK_BYTES, BlobRef

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
