"""Blobs on disk, each in a file named by its digest; a part file becomes a blob only when it is checked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from edge_client.storage.atomic_files import SYNCS_AT_ONCE, put_in_place, sync, unlink, write_synced
from edge_client.storage.file_recycling import SUFFIX, Spares, opened_over
from schemas.tensors.chunks import CHUNK_BYTES, BlobRef, digest_of, encode_chunk

if TYPE_CHECKING:
    from schemas.tensors.arrays import AnyArray
    from schemas.tensors.blobs import Groups

    WriteTensors = Callable[[BinaryIO, Mapping[str, AnyArray]], str]

_RECORD = struct.Struct("!II")
"""A chunk's crc32 and its complement, at the chunk's place in the list: what was never written is none."""


class BlobStore:
    """A folder of blobs. Not thread-safe for one digest; different digests may be written at once.

    One that is not `durable` does not wait for the disk. Beside a part file lies a list of the checksums of
    its chunks: what a power cut left of the two costs chunks that are fetched again, and nothing else. One
    that `only_writes` leaves it to another process to verify what it has put in its place. One that
    `writes_over` keeps the files of what it forgets for what comes next (`spares`), until it is closed.
    """

    def __init__(
        self,
        directory: Path,
        *,
        durable: bool = True,
        only_writes: bool = False,
        writes_over: bool = False,
    ) -> None:
        self._directory, self._durable, self._only_writes = directory, durable, only_writes
        self._prefix = f"{directory}{os.sep}"
        self._pool: ThreadPoolExecutor | None = None
        self._running: dict[str, _Running] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self.spares = Spares(directory) if writes_over else None

    @property
    def directory(self) -> Path:
        """Where the blobs are."""
        return self._directory

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

    def put_groups(
        self, groups: Groups, *, chunk_bytes: int = CHUNK_BYTES, write: WriteTensors | None = None
    ) -> BlobRef:
        """Keep parameter groups as a blob, written a piece at a time.

        A `write` other than `write_tensors` gives other bytes; it returns their sha256 in hex.
        """
        # All else here is bytes: a device imports what tensors need with its first task.
        from schemas.tensors.blobs import FlatGroups
        from schemas.tensors.files import write_tensors

        temporary = self._directory / f".groups.{os.getpid()}.{threading.get_ident()}.part"
        arrays = FlatGroups(groups)
        try:
            with opened_over(self.spares, arrays)(temporary) as file:
                digest = (write or write_tensors)(file, arrays)
            ref = BlobRef(digest=digest, size=temporary.stat().st_size, chunk_bytes=chunk_bytes)
            if digest not in self:
                put_in_place(temporary, self.path(digest), durable=self._durable)
        finally:
            temporary.unlink(missing_ok=True)
        return ref

    def write_chunk(self, ref: BlobRef, index: int, data: bytes | memoryview, crc: int | None = None) -> None:
        """Put one chunk in its place in the part file; raises `OSError` where the disk takes no more.

        `crc` spares computing it again.
        """
        self._write_at(_part_name(ref), index * ref.chunk_bytes, data, ref.size)
        crc = zlib.crc32(data) if crc is None else crc
        record = _RECORD.pack(crc, ~crc & 0xFFFFFFFF)
        size = ref.chunks * _RECORD.size
        self._write_at(_list_name(ref), index * _RECORD.size, record, size, blank=True)
        if not self._only_writes:
            self._follow(ref.digest, index, data)

    def _follow(self, digest: str, index: int, data: bytes | memoryview) -> None:
        """Hash what comes in order while it is at hand; of anything else the file is read in the end."""
        running = self._running.pop(digest, None) if index else _Running()
        if running is not None and running.chunks == index:
            running.add(data)
            self._running[digest] = running

    def present(self, ref: BlobRef) -> int:
        """The chunks of `ref` that are here and whole, as a bitmap; all of a blob that is in the store."""
        if self._stored(ref):
            return (1 << ref.chunks) - 1
        found = 0
        with contextlib.suppress(OSError), self._part(ref).open("rb") as part:
            for index, crc in _listed(self._list(ref).read_bytes(), ref.chunks):
                part.seek(index * ref.chunk_bytes)
                data = part.read(ref.chunk_size(index))
                if len(data) == ref.chunk_size(index) and zlib.crc32(data) == crc:
                    found |= 1 << index
        return found

    def verify(self, ref: BlobRef) -> bool:
        """Check size and sha256 of the part file and keep it; a file that fails is thrown away.

        A blob that is in the store already has been checked: asking twice gives the same answer.
        """
        sound = self._stored(ref) or self._part_is_sound(ref)
        if sound and not self._stored(ref):
            put_in_place(self._part(ref), self.path(ref.digest), durable=self._durable)
        for path in (self._part(ref), self._list(ref)):
            self.forget(path)
        return sound

    def keep_sound(self, refs: Iterable[BlobRef]) -> None:
        """Do for many blobs, side by side, what `verify` does for one that is sound.

        The disk is waited for once and not for each. Those that are not sound stay as they are.
        """
        wanted = [ref for ref in {ref.digest: ref for ref in refs}.values() if not self._stored(ref)]
        if not wanted:
            return
        self._pool = self._pool or ThreadPoolExecutor(SYNCS_AT_ONCE, thread_name_prefix="blobs")
        list(self._pool.map(self._put_if_sound, wanted))
        if self._durable:
            sync(self._directory)

    def _put_if_sound(self, ref: BlobRef) -> None:
        if self._part_is_sound(ref):
            if self._durable:
                sync(self._part(ref))
            self._part(ref).replace(self.path(ref.digest))

    def read_frame(self, ref: BlobRef, index: int) -> bytes:
        """Read chunk `index` of a blob as the frame to send; raises `OSError` when the blob is not there."""
        with self.path(ref.digest).open("rb") as file:
            file.seek(index * ref.chunk_bytes)
            return encode_chunk(ref.digest, index, file.read(ref.chunk_bytes))

    def parts(self) -> set[str]:
        """Names of the blobs that have begun to come."""
        return {entry.stem for entry in self._directory.glob("*.part")}

    def keep_only(self, digests: frozenset[str], *, remove: Callable[[Path], None] = unlink) -> None:
        """Forget every other blob, and every part of one; `remove` takes a file out of the way."""
        for entry in self._directory.iterdir():
            name = entry.name.removesuffix(".part").removesuffix(".chunks")
            if name not in digests and entry.suffix != SUFFIX:
                self._running.pop(name, None)
                self.forget(entry, remove)
        if self.spares is not None:
            if self._durable:
                # Files may have other bytes now: no power cut may bring their names back.
                sync(self._directory)
            self.spares.turn(remove)

    def close(self) -> None:
        """Remove what was only kept to be written over."""
        if self.spares is not None:
            self.spares.remove()

    def forget(self, path: Path, remove: Callable[[Path], None] = unlink) -> None:
        """Let go of a file; of one that has another name too, as where updates are kept, just of this one."""
        (remove if self.spares is None else self.spares.add)(path)

    def drop_parts(self, keep: frozenset[str]) -> None:
        """Forget what is half there of every other blob; blobs that are complete stay."""
        for entry in self._directory.iterdir():
            name, dot, _ = entry.name.partition(".")
            if dot and name not in keep:
                self._running.pop(name, None)
                entry.unlink(missing_ok=True)

    def drop_damaged(self) -> None:
        """Forget blobs that are not what they say: of those not waited for, a power cut leaves a name."""
        for digest in self.digests():
            if not self.is_sound(digest):
                self.path(digest).unlink(missing_ok=True)

    def is_sound(self, digest: str) -> bool:
        """Whether the blob is there and its bytes, read again, are those of its digest."""
        try:
            return _sha256(self.path(digest)) == digest
        except OSError:
            return False

    def _write_at(
        self, name: str, offset: int, data: bytes | memoryview, size: int, *, blank: bool = False
    ) -> None:
        """Write into a file that will be of this size; one that begins `blank` holds nothing but zeros."""
        descriptor = self._opened(name, size, blank)
        try:
            _write(descriptor, offset, data)
        finally:
            os.close(descriptor)

    def _opened(self, name: str, size: int, blank: bool) -> int:
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

    def _stored(self, ref: BlobRef) -> bool:
        path = self.path(ref.digest)
        return path.is_file() and path.stat().st_size == ref.size

    def _part_is_sound(self, ref: BlobRef) -> bool:
        part, running = self._part(ref), self._running.pop(ref.digest, None)
        if not part.is_file() or part.stat().st_size != ref.size:
            return False
        if running is not None and running.chunks == ref.chunks and running.digest == ref.digest:
            return True
        # Also where two have sent the same blob in chunks of different sizes: what was hashed is a mixture.
        return _sha256(part) == ref.digest


class _Running:
    """The sha256 of a blob whose chunks have come in order so far."""

    def __init__(self) -> None:
        self._hash, self.chunks = hashlib.sha256(), 0

    def add(self, data: bytes | memoryview) -> None:
        """Hash the next chunk."""
        self._hash.update(data)
        self.chunks += 1

    @property
    def digest(self) -> str:
        """Of all so far, hex."""
        return self._hash.hexdigest()


def _part_name(ref: BlobRef) -> str:
    return f"{ref.digest}.part"


def _list_name(ref: BlobRef) -> str:
    return f"{ref.digest}.chunks"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _begun(path: str, size: int, blank: bool) -> int:
    """A spare as a new file of this size, which holds what it held unless it is to be `blank`."""
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


def _listed(records: bytes, chunks: int) -> list[tuple[int, int]]:
    """Index and crc32 of every chunk that the list names."""
    whole = records[: min(len(records) // _RECORD.size, chunks) * _RECORD.size]
    pairs = enumerate(_RECORD.iter_unpack(whole))
    return [(index, crc) for index, (crc, check) in pairs if crc ^ check == 0xFFFFFFFF]
