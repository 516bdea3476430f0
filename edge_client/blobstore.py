"""Blobs on disk, each in a file named by its digest; a part file becomes a blob only when it is checked."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from edge_client.files import put_in_place, write_synced
from schemas.blobs import CHUNK_BYTES, BlobRef, digest_of, encode_chunk


class BlobStore:
    """A folder of blobs. Not thread-safe for one digest; different digests may be written at once.

    One that is not `durable` does not wait for the disk.
    """

    def __init__(self, directory: Path, *, durable: bool = True) -> None:
        self._directory, self._durable = directory, durable
        directory.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where the blob is, or would be."""
        return self._directory / digest

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).is_file()

    def digests(self) -> frozenset[str]:
        """Names of the blobs that are complete and checked."""
        return frozenset(entry.name for entry in self._directory.iterdir() if len(entry.name) == 64)

    def put(self, data: bytes, *, chunk_bytes: int = CHUNK_BYTES) -> BlobRef:
        """Keep `data` and return its reference; the same bytes are kept once."""
        ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=chunk_bytes)
        if ref.digest not in self:
            write_synced(self.path(ref.digest), data, durable=self._durable)
        return ref

    def write_chunk(self, ref: BlobRef, index: int, data: bytes) -> None:
        """Put one chunk in its place in the part file."""
        descriptor = os.open(self._part(ref), os.O_CREAT | os.O_WRONLY, 0o600)
        try:
            os.pwrite(descriptor, data, index * ref.chunk_bytes)
        finally:
            os.close(descriptor)

    def verify(self, ref: BlobRef) -> bool:
        """Check size and sha256 of the part file and keep it; a file that fails is thrown away.

        Bytes that are there already need no part: two devices may send the same, the second one's chunks
        going to a part that the first one's check has taken away.
        """
        part = self._part(ref)
        if ref.digest in self:
            part.unlink(missing_ok=True)
            return self.path(ref.digest).stat().st_size == ref.size
        if not part.is_file():
            return False
        with part.open("rb") as file:
            sound = hashlib.file_digest(file, "sha256").hexdigest() == ref.digest
        if sound and part.stat().st_size == ref.size:
            put_in_place(part, self.path(ref.digest), durable=self._durable)
            return True
        part.unlink()
        return False

    def read_frame(self, ref: BlobRef, index: int) -> bytes:
        """Read chunk `index` of a blob as the frame to send; raises `OSError` when the blob is not there."""
        with self.path(ref.digest).open("rb") as file:
            file.seek(index * ref.chunk_bytes)
            return encode_chunk(ref.digest, index, file.read(ref.chunk_bytes))

    def keep_only(self, digests: frozenset[str]) -> None:
        """Forget every other blob, and every part of one."""
        for entry in self._directory.iterdir():
            if entry.name.removesuffix(".part") not in digests:
                entry.unlink(missing_ok=True)

    def _part(self, ref: BlobRef) -> Path:
        return self._directory / f"{ref.digest}.part"
