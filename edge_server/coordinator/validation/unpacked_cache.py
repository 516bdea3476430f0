"""Updates that came packed, unpacked beside the store: a cache, which may be deleted at any time."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from edge_client.compression.zstd import is_compressed, unpack
from edge_client.storage.file_recycling import SUFFIX, Spares
from schemas.tensors.blobs import FileGroups, Groups

IN_MEMORY_BYTES = 4 * 1024 * 1024
"""An update that is smaller is looked at where it was unpacked, and not read again from its file."""


class UnpackedCache:
    """A folder of files, each named by the digest of the packed one that it was made of."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._own = folder, threading.local()
        self._spares = Spares(folder)

    def groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The groups of an update as they were encoded, read a piece at a time.

        Raises `PeerError` for what is damaged, or larger than `limit` bytes when it is unpacked.
        """
        if not is_compressed(path):
            return FileGroups(path)
        unpacked = self._folder / path.name
        if not unpacked.is_file():
            self._unpack(path, unpacked, limit)
        return FileGroups(unpacked)

    def looked_at(self, path: Path, *, limit: int | None = None) -> Groups:
        """The same for one look, before this thread's next: of a small update they are in memory."""
        if not is_compressed(path):
            return FileGroups(path)
        unpacked = self._folder / path.name
        if unpacked.is_file():
            return FileGroups(unpacked)
        if not hasattr(self._own, "buffer"):
            self._own.buffer = bytearray(IN_MEMORY_BYTES)
        return FileGroups(unpacked, self._unpack(path, unpacked, limit, self._own.buffer))

    def keep_only(self, digests: frozenset[str]) -> None:
        """Forget the others; their files are written over by what is unpacked next."""
        for path in self._folder.glob("*"):
            if path.name not in digests and path.suffix != SUFFIX:
                self._spares.add(path)
        self._spares.turn()

    def remove(self) -> None:
        """Forget all, and the folder too."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _unpack(
        self, path: Path, unpacked: Path, limit: int | None, through: bytearray | None = None
    ) -> memoryview | None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{path.name}.{os.getpid()}.{threading.get_ident()}.part"
        try:
            with self._spares.written(temporary, limit or path.stat().st_size) as file:
                found = unpack(path, file, limit=limit, through=through)
            # It need not outlive a power cut, but must never be half there.
            temporary.replace(unpacked)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return found
