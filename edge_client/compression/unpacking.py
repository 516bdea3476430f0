"""Unpacks a task's blobs into temporary files."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edge_client.compression.zstd import unpack
from edge_client.storage.blob_store import BlobStore
from schemas.messages import Task


class GroupStore(Protocol):
    """Finds the files of blobs."""

    def blob_path(self, digest: str) -> Path:
        """The file with the (unpacked) content of a blob."""
        ...


@dataclass(frozen=True)
class Unpacked:
    """A store's blobs, some of which are unpacked into other files."""

    store: GroupStore
    files: Mapping[str, Path]

    def blob_path(self, digest: str) -> Path:
        return self.files.get(digest) or self.store.blob_path(digest)


@contextmanager
def unpack_blobs(task: Task, store: BlobStore) -> Iterator[GroupStore]:
    """The blobs of a task, with its packed layers unpacked until the block ends.

    Raises `PeerError` for a damaged layer, or one that is larger than the task states.
    """
    packed = [layer for layer in task.layers if layer.unpacked is not None]
    sizes = {task.blobs[layer.blob].digest: layer.unpacked for layer in packed}
    owner = f"{os.getpid()}.{threading.get_ident()}"
    files = {digest: store.directory / f".unpacked-{digest}.{owner}.part" for digest in sizes}
    try:
        for digest, path in files.items():
            with path.open("wb") as file:
                unpack(store.blob_path(digest), file, limit=sizes[digest])
        yield Unpacked(store, files)
    finally:
        for path in files.values():
            path.unlink(missing_ok=True)
