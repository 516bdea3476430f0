"""Blobs on disk, each in a file named by its digest; a part file becomes a blob once it is verified."""

import contextlib
import hashlib
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping, Set
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from edge_client.storage.atomic_files import (
    SYNCS_AT_ONCE,
    file_sha256,
    put_in_place,
    sync,
    unlink,
    write_synced,
)
from edge_client.storage.file_recycling import SUFFIX, Spares, opened_over
from schemas.tensors.chunks import CHUNK_BYTES, BlobRef, ChunkSet, digest_of, encode_chunk

if TYPE_CHECKING:
    from schemas.tensors.arrays import AnyArray, Groups

    WriteTensors = Callable[[BinaryIO, Mapping[str, AnyArray]], str]

# A chunk's crc32 and its complement, at the chunk's place in the list; zeros: it was never written.
_RECORD = struct.Struct("!II")


class BlobStore:
    """A folder of blobs. Not thread-safe for one digest; different digests may be written at once.

    Without `durable` it does not wait for the disk. Next to a part file is a list of its chunks' checksums:
    after a power cut, damaged chunks are fetched again. With `only_writes` another process verifies the
    blobs. With `writes_over` the files of removed blobs are kept and overwritten (`spares`), until it is
    closed.
    """

    def __init__(
        self, directory: Path, *, durable: bool = True, only_writes: bool = False, writes_over: bool = False
    ) -> None:
        self._directory, self._durable, self._only_writes = directory, durable, only_writes
        self._prefix = f"{directory}{os.sep}"
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[str, RunningDigest] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self.spares = Spares(directory) if writes_over else None

    @property
    def directory(self) -> Path:
        return self._directory

    def blob_path(self, digest: str) -> Path:
        """The path of a blob, whether it exists or not."""
        return self._directory / digest

    def __contains__(self, digest: str) -> bool:
        return self.blob_path(digest).is_file()

    def digests(self) -> frozenset[str]:
        """Digests of the complete and verified blobs."""
        return frozenset(entry.name for entry in self._directory.iterdir() if len(entry.name) == 64)

    def put_blob(self, data: bytes, *, chunk_bytes: int = CHUNK_BYTES) -> BlobRef:
        """Store `data` and return its reference; equal bytes are stored once."""
        ref = BlobRef(digest=digest_of(data), size=len(data), chunk_bytes=chunk_bytes)
        if ref.digest not in self:
            write_synced(self.blob_path(ref.digest), data, durable=self._durable)
        return ref

    def put_groups(
        self, groups: "Groups", *, chunk_bytes: int = CHUNK_BYTES, write: "WriteTensors | None" = None
    ) -> BlobRef:
        """Store parameter groups as a blob, written in pieces.

        A `write` other than `write_tensors` writes another format; it returns the sha256 in hex.
        """
        # All else here is bytes: a device imports what tensors need with its first task.
        from schemas.tensors.files import FlatGroups, write_tensors

        temporary = self._directory / f".groups.{os.getpid()}.{threading.get_ident()}.part"
        arrays = FlatGroups(groups)
        try:
            with opened_over(self.spares, arrays)(temporary) as file:
                digest = (write or write_tensors)(file, arrays)
            ref = BlobRef(digest=digest, size=temporary.stat().st_size, chunk_bytes=chunk_bytes)
            if digest not in self:
                put_in_place(temporary, self.blob_path(digest), durable=self._durable)
        finally:
            temporary.unlink(missing_ok=True)
        return ref

    def write_chunk(self, ref: BlobRef, index: int, data: bytes | memoryview, crc: int | None = None) -> None:
        """Write a chunk into the part file; `OSError` if the disk is full.

        A given `crc` is not computed again.
        """
        self._write_at(_part_name(ref), index * ref.chunk_bytes, data, ref.size)
        crc = zlib.crc32(data) if crc is None else crc
        record = _RECORD.pack(crc, ~crc & 0xFFFFFFFF)
        self._write_at(_list_name(ref), index * _RECORD.size, record, ref.chunks * _RECORD.size, blank=True)
        if self._only_writes:
            return
        # Chunks that arrive in order are hashed; otherwise the file is hashed at the end.
        running = self._running.pop(ref.digest, None) if index else RunningDigest()
        if running is not None and running.chunks == index:
            running.add(data)
            self._running[ref.digest] = running

    def present(self, ref: BlobRef) -> ChunkSet:
        """The stored, valid chunks of `ref`; all of them if the blob is complete."""
        if self._is_stored(ref):
            return ChunkSet.first(ref.chunks)
        sound = list[int]()
        with contextlib.suppress(OSError), self._part(ref).open("rb") as part:
            for index, crc in _parse_chunk_list(self._list(ref).read_bytes(), ref.chunks):
                part.seek(index * ref.chunk_bytes)
                data = part.read(ref.chunk_size(index))
                if len(data) == ref.chunk_size(index) and zlib.crc32(data) == crc:
                    sound.append(index)
        return ChunkSet.of(sound)

    def verify(self, ref: BlobRef) -> bool:
        """Check size and sha256 of the part file and make it a blob, or delete it.

        A blob that is already in the store has been verified.
        """
        sound = self._is_stored(ref) or self._part_is_sound(ref)
        if sound and not self._is_stored(ref):
            put_in_place(self._part(ref), self.blob_path(ref.digest), durable=self._durable)
        for path in (self._part(ref), self._list(ref)):
            self.forget(path)
        return sound

    def keep_sound(self, refs: Iterable[BlobRef]) -> None:
        """As `verify` for many blobs in parallel, but blobs that fail stay as they are.

        All blobs share one wait for the disk.
        """
        wanted = [ref for ref in {ref.digest: ref for ref in refs}.values() if not self._is_stored(ref)]
        if not wanted:
            return
        self._pool = self._pool or ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="blobs")
        list(self._pool.map(self._put_if_sound, wanted))
        if self._durable:
            sync(self._directory)

    def _put_if_sound(self, ref: BlobRef) -> None:
        # Two devices may have sent the same bytes, and another process may just have kept them.
        with contextlib.suppress(FileNotFoundError):
            if self._part_is_sound(ref):
                if self._durable:
                    sync(self._part(ref))
                self._part(ref).replace(self.blob_path(ref.digest))

    def read_frame(self, ref: BlobRef, index: int) -> bytes:
        """Read chunk `index` of a blob as a frame; `OSError` if the blob is missing."""
        with self.blob_path(ref.digest).open("rb") as file:
            file.seek(index * ref.chunk_bytes)
            return encode_chunk(ref.digest, index, file.read(ref.chunk_bytes))

    def parts(self) -> set[str]:
        return {entry.stem for entry in self._directory.glob("*.part")}

    def newest(self) -> float:
        """When the newest blob was written, in seconds since 1970; 0 without any."""
        with os.scandir(self._directory) as entries:
            return max((entry.stat().st_mtime for entry in entries), default=0.0)

    def bytes_without(self, digests: Set[str]) -> int:
        """Bytes on the disk of all files but these blobs: sparse ones have fewer than they are long."""
        with os.scandir(self._directory) as entries:
            return sum(512 * entry.stat().st_blocks for entry in entries if entry.name not in digests)

    def keep_only(self, digests: frozenset[str], *, remove: Callable[[Path], None] = unlink) -> None:
        """Remove all other blobs and their part files; `remove` deletes or recycles a file.

        Files that are just being made, which begin with a point, stay.
        """
        for entry in self._directory.iterdir():
            name = entry.name.removesuffix(".part").removesuffix(".chunks")
            if name not in digests and entry.suffix != SUFFIX and not name.startswith("."):
                self._running.pop(name, None)
                self.forget(entry, remove)
        if self.spares is not None:
            if self._durable:
                # Files may have other bytes now: no power cut may bring their names back.
                sync(self._directory)
            self.spares.turn(remove)

    def close(self) -> None:
        """Remove the files that were kept to be overwritten."""
        if self.spares is not None:
            self.spares.remove()

    def forget(self, path: Path, remove: Callable[[Path], None] = unlink) -> None:
        """Remove or recycle a file; of a file with a second name (an archived update) only this name is
        removed."""
        (remove if self.spares is None else self.spares.add)(path)

    def drop_parts(self, keep: frozenset[str]) -> None:
        """Remove the part files of other blobs; complete blobs stay."""
        for entry in self._directory.iterdir():
            name, dot, _ = entry.name.partition(".")
            if dot and name not in keep:
                self._running.pop(name, None)
                entry.unlink(missing_ok=True)

    def drop_damaged(self) -> None:
        """Remove blobs whose bytes do not match their digest, as a power cut may leave without `durable`."""
        for digest in self.digests():
            if not self.is_sound(digest):
                self.blob_path(digest).unlink(missing_ok=True)

    def is_sound(self, digest: str) -> bool:
        """Whether the blob exists and its bytes, read again, match its digest."""
        try:
            return file_sha256(self.blob_path(digest)) == digest
        except OSError:
            return False

    def _write_at(
        self, name: str, offset: int, data: bytes | memoryview, size: int, *, blank: bool = False
    ) -> None:
        """Write into a file of this final size; with `blank` the rest of the file is zeros."""
        descriptor = self._open_part(name, size, blank)
        try:
            _write(descriptor, offset, data)
        finally:
            os.close(descriptor)

    def _open_part(self, name: str, size: int, blank: bool) -> int:
        # For every chunk twice: a `Path` would take longer to make than the file to open.
        path = f"{self._prefix}{name}"
        if self.spares is not None:
            with contextlib.suppress(FileNotFoundError):
                return os.open(path, os.O_WRONLY)
            if self.spares.become(Path(path), size):
                return _begun(path, size, blank)
        return os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)

    def _part(self, ref: BlobRef) -> Path:
        return self._directory / _part_name(ref)

    def _list(self, ref: BlobRef) -> Path:
        return self._directory / _list_name(ref)

    def _is_stored(self, ref: BlobRef) -> bool:
        path = self.blob_path(ref.digest)
        return path.is_file() and path.stat().st_size == ref.size

    def _part_is_sound(self, ref: BlobRef) -> bool:
        part, running = self._part(ref), self._running.pop(ref.digest, None)
        if not part.is_file() or part.stat().st_size != ref.size:
            return False
        if running is not None and running.chunks == ref.chunks and running.digest == ref.digest:
            return True
        # Also where two have sent the same blob in chunks of different sizes: what was hashed is a mixture.
        return file_sha256(part) == ref.digest


class RunningDigest:
    """The sha256 of a blob whose chunks have arrived in order so far."""

    def __init__(self) -> None:
        self._hash, self.chunks = hashlib.sha256(), 0

    def add(self, data: bytes | memoryview) -> None:
        self._hash.update(data)
        self.chunks += 1

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()


def _part_name(ref: BlobRef) -> str:
    return f"{ref.digest}.part"


def _list_name(ref: BlobRef) -> str:
    return f"{ref.digest}.chunks"


def _begun(path: str, size: int, blank: bool) -> int:
    """A recycled file as a new file of this size; its old content stays unless `blank`."""
    descriptor = os.open(path, os.O_WRONLY)
    try:
        # Not cut to nothing: ext4 takes that for a file that is replaced, and writes it down as it is closed.
        os.ftruncate(descriptor, size)
        _write(descriptor, 0, bytes(size if blank else 0))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _write(descriptor: int, offset: int, data: bytes | memoryview) -> None:
    # A disk that is nearly full takes a piece and says so only when it is given the rest.
    while data:
        written = os.pwrite(descriptor, data, offset)
        offset, data = offset + written, data[written:]


def _parse_chunk_list(records: bytes, chunks: int) -> list[tuple[int, int]]:
    """Index and crc32 of every chunk in the list."""
    whole = records[: min(len(records) // _RECORD.size, chunks) * _RECORD.size]
    pairs = enumerate(_RECORD.iter_unpack(whole))
    return [(index, crc) for index, (crc, check) in pairs if crc ^ check == 0xFFFFFFFF]
