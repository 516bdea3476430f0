"""A cache of decompressed updates, which may be deleted at any time."""

import io
import os
import shutil
import threading
from pathlib import Path

from edge_client.compression.zstd import is_compressed, unpack
from edge_client.storage.file_recycling import SUFFIX, Spares
from schemas.tensors.blobs import FileGroups, Groups

IN_MEMORY_BYTES = 4 * 1024 * 1024
"""Smaller updates are examined in memory instead of from their decompressed file."""


class UnpackedCache:
    """A folder of decompressed files, named by the digest of the compressed one.

    `anew` deletes those of an earlier process: they were not synced, so a power cut may have torn them.
    """

    def __init__(self, folder: Path, *, anew: bool = False) -> None:
        self.folder, self._own = folder, threading.local()
        if anew:
            self.remove()
        self._spares = Spares(folder)

    def groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The encoded groups of an update, read in blocks.

        Raises `PeerError` if the file is damaged, or larger than `limit` bytes when decompressed.
        """
        return FileGroups(self.unpacked_path(path, limit=limit))

    def unpacked_path(self, path: Path, *, limit: int | None = None) -> Path:
        """The decompressed file, or the file itself if it is not compressed; raises as `groups`."""
        if not is_compressed(path):
            return path
        unpacked = self.folder / path.name
        if not unpacked.is_file():
            self.unpack(path, unpacked, limit)
        return unpacked

    def transient_groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """As `groups`, but valid only until this thread's next call: small updates are in memory."""
        if not is_compressed(path):
            return FileGroups(path)
        unpacked = self.folder / path.name
        if unpacked.is_file():
            return FileGroups(unpacked)
        if not hasattr(self._own, "buffer"):
            self._own.buffer = bytearray(IN_MEMORY_BYTES)
        return FileGroups(unpacked, self.unpack(path, unpacked, limit, self._own.buffer))

    def keep_only(self, digests: frozenset[str]) -> None:
        """Forget all other digests; their files are reused for the next decompressed updates."""
        for path in self.folder.glob("*"):
            if path.name not in digests and path.suffix != SUFFIX:
                self._spares.add(path)
        self._spares.turn()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def unpack(
        self, path: Path, unpacked: Path, limit: int | None, through: bytearray | None = None
    ) -> memoryview | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{path.name}.{os.getpid()}.{threading.get_ident()}.part"
        try:
            with self._spares.written(temporary, limit or path.stat().st_size) as file:
                found = unpack(path, file, limit=limit, through=through)
            # Complete or absent, but not synced: it may be lost in a power cut.
            temporary.replace(unpacked)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return found


HELD_BYTES = 32 * 1024 * 1024


class UnpackedInMemory(UnpackedCache):
    """As its base, but small updates are kept in memory, `HELD_BYTES` of them, and no file is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._held: dict[str, FileGroups] = {}
        self._bytes, self._buffer = 0, bytearray(IN_MEMORY_BYTES // 4)

    def groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The encoded groups of an update; raises as its base."""
        return self._held[path.name] if path.name in self._held else super().groups(path, limit=limit)

    def transient_groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The same; valid until `forget`."""
        fits = limit is not None and limit <= min(IN_MEMORY_BYTES, HELD_BYTES - self._bytes)
        if not fits or not is_compressed(path):
            return self.groups(path, limit=limit)
        content = io.BytesIO()
        unpack(path, content, limit=limit, through=self._buffer)
        self._bytes += content.tell()
        self._held[path.name] = found = FileGroups(path, content.getbuffer().toreadonly())
        return found

    def forget(self) -> None:
        """Free the memory."""
        self._held.clear()
        self._bytes = 0
