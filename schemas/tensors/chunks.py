"""Blobs as they travel: named by their sha256, cut into checked chunks; nothing here looks into one.

So a device can hear of blobs and fetch them before it has imported what its tensors need.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from dataclasses import dataclass, field
from typing import TypeVar

from pydantic import Field, ValidationError

from schemas.base import Frozen
from schemas.errors import PeerError
from schemas.names import Digest

Value = TypeVar("Value", bound=Frozen)

CHUNK_BYTES = 256 * 1024
SMALL_CHUNK_BYTES = 64 * 1024
"""For brokers that take only small packets (AWS IoT Core: 128 kB)."""
FRAME_BYTES = 1024
"""What a packet may have beside its chunk: headers, topic, properties."""
CHUNK_SIZES = (CHUNK_BYTES, SMALL_CHUNK_BYTES, 32 * 1024 - FRAME_BYTES, 16 * 1024 - FRAME_BYTES)
"""The sizes that there are; the last two for packets of 32 and 16 kB."""
INLINE_BYTES = 128 * 1024
"""Up to this size a blob is sent along unasked, right behind the message that names it."""
MAX_BLOB_BYTES = 4 * 1024**3


class BlobRef(Frozen):
    """A blob by name: enough to ask for it, to bound it and to check it."""

    digest: Digest
    size: int = Field(ge=1, le=MAX_BLOB_BYTES)
    chunk_bytes: int = Field(default=CHUNK_BYTES, ge=1024, le=1024 * 1024)

    @property
    def chunks(self) -> int:
        """Number of chunks; the last one may be short."""
        return -(-self.size // self.chunk_bytes)

    @property
    def inline(self) -> bool:
        """Whether the sender pushes it unasked (one chunk that fits a small message)."""
        return self.size <= INLINE_BYTES and self.chunks == 1

    def chunk_size(self, index: int) -> int:
        """Bytes in chunk `index`."""
        return min(self.chunk_bytes, self.size - index * self.chunk_bytes)


@dataclass(frozen=True)
class Chunk:
    """One piece of a blob: the first 8 bytes of its digest (hex, 16 digits), its index, its bytes.

    The bytes of one that was read are where they came: a view of its frame. `crc` is their crc32 where it
    was computed already.
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
    """What stands before the data of chunk `index`, whose crc32 is known already."""
    return _HEADER.pack(_MAGIC, _VERSION, bytes.fromhex(digest[:16]), index, crc)


def decode_chunk(frame: bytes) -> Chunk:
    """Read a frame; raises `PeerError` when it is short, of another kind or damaged."""
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
    """Decode a value of the contract; raises `PeerError` for anything that is not one."""
    try:
        return model.model_validate_json(data)
    except (ValidationError, RecursionError) as error:
        raise PeerError(f"{source} is not a {model.__name__}: {str(error)[:200]}") from error


def encode_json(value: Frozen) -> bytes:
    """Encode a value of the contract as the bytes of a blob (sorted keys, so that names are stable)."""
    return json.dumps(value.model_dump(mode="json"), sort_keys=True, separators=(",", ":")).encode()
