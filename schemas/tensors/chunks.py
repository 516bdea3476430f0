"""Transfer of blobs: bytes named by their sha256, in checked chunks.

This module does not import numpy, so that a device can fetch blobs before it loads its training libraries.
"""

import hashlib
import json
import struct
import zlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeVar

from pydantic import Field, ValidationError

from schemas.base import Digest, Frozen
from schemas.errors import PeerError

# Sets of chunk numbers as runs: chunks come in order, so that a blob of any size has few of them.


@dataclass(frozen=True, slots=True)
class ChunkSet:
    """A set of chunk numbers. `runs` [first, stop) are in order, and neither overlap nor touch."""

    runs: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[int]) -> "ChunkSet":
        """The set of these numbers, which ascend."""
        runs: list[tuple[int, int]] = []
        for number in numbers:
            if runs and runs[-1][1] == number:
                runs[-1] = (runs[-1][0], number + 1)
            else:
                runs.append((number, number + 1))
        return cls(tuple(runs))

    @classmethod
    def first(cls, count: int) -> "ChunkSet":
        """The numbers below `count`."""
        return cls(((0, count),) if count else ())

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(*run) for run in self.runs)

    def __len__(self) -> int:
        return sum(stop - first for first, stop in self.runs)

    def __contains__(self, number: int) -> bool:
        place = bisect_right(self.runs, (number + 1,)) - 1
        return place >= 0 and number < self.runs[place][1]

    def touches(self, number: int) -> bool:
        """Whether the number, or the one before or behind it, is in the set."""
        return any(near in self for near in (number - 1, number, number + 1))

    def adding(self, first: int, count: int = 1) -> "ChunkSet":
        """The set with `count` numbers from `first` on."""
        stop = first + count
        before = bisect_right(self.runs, (first + 1,))
        if before and self.runs[before - 1][1] >= first:
            before -= 1
            first = self.runs[before][0]
        behind = bisect_right(self.runs, (stop + 1,), before)
        if behind > before:
            stop = max(stop, self.runs[behind - 1][1])
        return ChunkSet((*self.runs[:before], (first, stop), *self.runs[behind:]))

    def without(self, number: int) -> "ChunkSet":
        if number not in self:
            return self
        place = bisect_right(self.runs, (number + 1,)) - 1
        first, stop = self.runs[place]
        left = tuple(run for run in ((first, number), (number + 1, stop)) if run[0] < run[1])
        return ChunkSet((*self.runs[:place], *left, *self.runs[place + 1 :]))

    def below(self, count: int) -> "ChunkSet":
        return ChunkSet(tuple((first, min(stop, count)) for first, stop in self.runs if first < count))

    def gap(self, count: int) -> tuple[int, int] | None:
        """First number and length of the first run below `count` that is not in the set; None if all is."""
        first = self.runs[0][1] if self.runs and self.runs[0][0] == 0 else 0
        following = next((run[0] for run in self.runs[:2] if run[0] > first), count)
        return (first, min(following, count) - first) if first < count else None


NO_CHUNKS = ChunkSet()


Value = TypeVar("Value", bound=Frozen)

CHUNK_BYTES = 256 * 1024
SMALL_CHUNK_BYTES = 64 * 1024  # for brokers that take only small packets (AWS IoT Core: 128 kB)
FRAME_BYTES = 1024  # room in a packet for all but its chunk: headers, topic, properties
CHUNK_SIZES = (CHUNK_BYTES, SMALL_CHUNK_BYTES, 32 * 1024 - FRAME_BYTES, 16 * 1024 - FRAME_BYTES)
"""The supported sizes; the last two fit packets of 32 and 16 kB."""
INLINE_BYTES = 128 * 1024  # blobs up to this size are sent unasked, right after the message that names them
MAX_BLOB_BYTES = 4 * 1024**3


class BlobRef(Frozen):
    """A blob's digest, size in bytes and chunk size: enough to request and check it."""

    digest: Digest
    size: int = Field(ge=1, le=MAX_BLOB_BYTES)
    chunk_bytes: int = Field(default=CHUNK_BYTES, ge=1024, le=1024 * 1024)

    @property
    def chunks(self) -> int:
        """Number of chunks; the last one may be short."""
        return -(-self.size // self.chunk_bytes)

    @property
    def inline(self) -> bool:
        """Whether the sender pushes it unasked: one chunk that fits a small message."""
        return self.size <= INLINE_BYTES and self.chunks == 1

    def chunk_size(self, index: int) -> int:
        return min(self.chunk_bytes, self.size - index * self.chunk_bytes)


@dataclass(frozen=True)
class Chunk:
    """A chunk of a blob: `prefix` is the first 8 bytes of the blob's digest as 16 hex digits.

    The `data` of a decoded chunk is a view of its frame. `crc` is the crc32 of the data if it is known.
    """

    prefix: str
    index: int
    data: bytes | memoryview
    crc: int | None = field(default=None, compare=False)


_HEADER = struct.Struct("!2sBx8sII")
_MAGIC, _VERSION = b"EF", 1
CHUNK_HEADER_BYTES = _HEADER.size


def encode_chunk(digest: str, index: int, data: bytes) -> bytes:
    """Frame `data` as chunk `index` of blob `digest`: header (20 bytes, crc32 of the data), then the data."""
    return chunk_header(digest, index, zlib.crc32(data)) + data


def chunk_header(digest: str, index: int, crc: int) -> bytes:
    """The header before the data of chunk `index`; `crc` is the crc32 of the data."""
    return _HEADER.pack(_MAGIC, _VERSION, bytes.fromhex(digest[:16]), index, crc)


def decode_chunk(frame: bytes) -> Chunk:
    """Decode a frame; raises `PeerError` if it is too short, of another format or damaged."""
    if len(frame) <= CHUNK_HEADER_BYTES:
        raise PeerError(f"chunk frame of {len(frame)} bytes is too short")
    magic, version, prefix, index, crc = _HEADER.unpack_from(frame)
    data = memoryview(frame)[CHUNK_HEADER_BYTES:]
    if magic != _MAGIC or version != _VERSION:
        raise PeerError(f"not a version {_VERSION} chunk frame")
    if zlib.crc32(data) != crc:
        raise PeerError(f"chunk {index} of {prefix.hex()} is damaged", reason="digest-mismatch")
    return Chunk(prefix.hex(), index, data, crc)


def digest_of(data: bytes) -> str:
    """The name of a blob: sha256 of its bytes, hex."""
    return hashlib.sha256(data).hexdigest()


def decode_json(model: type[Value], data: bytes, *, source: str = "blob") -> Value:
    """Decode a value of the contract; raises `PeerError` if it is not valid."""
    try:
        return model.model_validate_json(data)
    except (ValidationError, RecursionError) as error:
        raise PeerError(f"{source} is not a {model.__name__}: {str(error)[:200]}") from error


def encode_json(value: Frozen) -> bytes:
    """Encode a value of the contract as a blob, with sorted keys so that equal values have equal digests."""
    return json.dumps(value.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()
