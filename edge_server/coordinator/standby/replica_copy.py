"""The copy of a run folder: entries are applied in order, and are on disk before they are confirmed."""

import contextlib
import json
import shutil
import sqlite3
from pathlib import Path, PurePosixPath

from edge_client.storage.atomic_files import put_in_place, sync, usable_folder, write_synced
from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator.standby import following, replica_source
from edge_server.storage.sqlite_file import only_rows, repeat
from schemas.errors import ConfigError, PeerError
from schemas.tensors.chunks import BlobRef

FOLDERS = frozenset({"blobs", "checkpoints", "models"})


class RunCopy:
    """The run folder of a standby."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._connection: sqlite3.Connection | None = None
        shutil.rmtree(run / replica_source.FOLDER, ignore_errors=True)
        self.store = BlobStore(run / replica_source.FOLDER)

    def apply(self, entry: following.Entry) -> None:
        """Make the copy what the followed folder was after this entry; its blobs are in the store."""
        if entry.journal is not None:
            self._clear()
        for name, ref in entry.files.items():
            self._place(ref, self._path(name))
        if entry.journal is not None:
            self._place(entry.journal, self._run / replica_source.JOURNAL)
            self._connection = sqlite3.connect(self._run / replica_source.JOURNAL)
            self._connection.execute("PRAGMA synchronous=FULL")
            only_rows(self._connection)
        if entry.changes:
            assert self._connection is not None
            repeat(self._connection, [(sql, [list(row) for row in rows]) for sql, rows in entry.changes])
        for name in entry.gone:
            self._path(name).unlink(missing_ok=True)
        for digest in entry.blobs:
            self.store.blob_path(digest).unlink(missing_ok=True)

    def become_a_run(self) -> None:
        """No more entries: a server may serve the folder."""
        self._close()
        shutil.rmtree(self._run / replica_source.FOLDER, ignore_errors=True)
        (self._run / replica_source.COPIED).rename(self._run / replica_source.FOLLOWED)
        sync(self._run)

    def _clear(self) -> None:
        """Remove what an earlier copy has left."""
        self._close()
        for name in FOLDERS:
            shutil.rmtree(self._run / name, ignore_errors=True)
        for path in self._run.iterdir():
            if path.name.startswith(replica_source.JOURNAL) or (
                path.suffix in replica_source.SUFFIXES and path.name != replica_source.COPIED
            ):
                path.unlink()
        for name in (*FOLDERS, "onnx"):
            (self._run / name).mkdir(exist_ok=True)

    def _place(self, ref: BlobRef, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.part")
        aside.unlink(missing_ok=True)
        replica_source.link_or_copy(self.store.blob_path(ref.digest), aside)
        put_in_place(aside, path)

    def _path(self, name: str) -> Path:
        """The path of a file of the copy; raises `PeerError` for one outside of it."""
        parts = PurePosixPath(name).parts
        inside = len(parts) == 1 or (parts and parts[0] in FOLDERS)
        if (
            not inside
            or ".." in parts
            or name.startswith("/")
            or parts[-1] in (replica_source.COPIED, "signing.key")
        ):
            raise PeerError(f"no file of a run folder: {name[:100]!r}")
        return self._run / name

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def mark_as_copy(run: Path, federation: str) -> None:
    """Make the folder that of a standby; raises `ConfigError` if it holds a run of its own."""
    holds_run = (run / replica_source.JOURNAL).exists() or (run / "history.jsonl").exists()
    if holds_run and not is_copy(run):
        raise ConfigError(f"{run} holds a run of its own", remedy="name another folder for the copy")
    write_synced(
        usable_folder(run, option="RUN") / replica_source.COPIED, json.dumps({"of": federation}).encode()
    )


def was_copy(run: Path) -> bool:
    """Whether a standby has taken over in this folder."""
    return (run / replica_source.FOLLOWED).is_file() and not is_copy(run)


def is_copy(run: Path) -> bool:
    """Whether the folder is that of a standby which has not taken over."""
    with contextlib.suppress(OSError):
        return (run / replica_source.COPIED).is_file()
    return False
