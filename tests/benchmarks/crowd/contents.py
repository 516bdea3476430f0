"""What all devices of one process share: the chunks that came, the blobs they make, the answers to them.

The first device that gets a chunk checks and keeps it; of all later ones it is checked that they are equal to
that, byte by byte. So a thousand devices hold one model, and hash it once.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from dataclasses import dataclass

import numpy as np

from schemas.blobs import (
    CHUNK_HEADER_BYTES,
    BlobRef,
    Chunk,
    chunk_header,
    decode_chunk,
    decode_groups,
    encode_groups,
)
from schemas.errors import PeerError
from tests.benchmarks.crowd.wire import Arrived

MAX_FRAMES, MAX_BLOBS = 1000, 40


@dataclass(frozen=True)
class Upload:
    """One device's answer: the answer of all its kind but for the last number, which is its own."""

    ref: BlobRef
    common: bytes
    tail: bytes
    crcs: tuple[int, ...]

    def frame(self, index: int) -> tuple[bytes, memoryview | bytes]:
        """Chunk `index` as header and data."""
        start = index * self.ref.chunk_bytes
        data = memoryview(self.common)[start : start + self.ref.chunk_size(index)]
        if index < self.ref.chunks - 1:
            return chunk_header(self.ref.digest, index, self.crcs[index]), data
        crc = zlib.crc32(self.tail, self.crcs[index])
        return chunk_header(self.ref.digest, index, crc), b"".join((data, self.tail))


class Contents:
    """The blobs of a process."""

    def __init__(self) -> None:
        self._frames: OrderedDict[bytes, tuple[bytes, Chunk]] = OrderedDict()
        self._blobs: OrderedDict[str, bytes] = OrderedDict()
        self._answers: OrderedDict[str, tuple[bytes, hashlib._Hash, tuple[int, ...]]] = OrderedDict()

    def chunk(self, arrived: Arrived) -> Chunk:
        """The chunk that came; raises `PeerError` for one that is damaged."""
        head = bytes(arrived.data[arrived.start : arrived.start + CHUNK_HEADER_BYTES])
        known = self._frames.get(head)
        size = arrived.stop - arrived.start
        if known is not None and size == len(known[0]) and arrived.data.startswith(known[0], arrived.start):
            return known[1]
        frame = arrived.payload
        chunk = decode_chunk(frame)
        _put(self._frames, head, (frame, chunk), MAX_FRAMES)
        return chunk

    def sound(self, ref: BlobRef) -> bool:
        """Whether the chunks of a blob, which have all come, make it; it is kept."""
        if ref.digest in self._blobs:
            return True
        chunks = {c.index: c.data for _, c in self._frames.values() if ref.digest.startswith(c.prefix)}
        data = b"".join(chunks[index] for index in sorted(chunks))
        if hashlib.sha256(data).hexdigest() != ref.digest:
            return False
        _put(self._blobs, ref.digest, data, MAX_BLOBS)
        return True

    def answer(self, state: BlobRef, number: int) -> Upload:
        """What device `number` has made of a state: a small step, its last number like no other's."""
        if state.digest not in self._answers:
            _put(
                self._answers, state.digest, _trained(self._blobs[state.digest], state.chunk_bytes), MAX_BLOBS
            )
        common, hashed, crcs = self._answers[state.digest]
        tail = np.float32(1e-6 * (1 + number)).tobytes()
        own = hashed.copy()
        own.update(tail)
        ref = BlobRef(digest=own.hexdigest(), size=len(common) + 4, chunk_bytes=state.chunk_bytes)
        return Upload(ref, common, tail, crcs)


def _trained(state: bytes, chunk_bytes: int) -> tuple[bytes, hashlib._Hash, tuple[int, ...]]:
    """A hundredth of the model as its change, without the last number; its hash so far; its chunks' crcs."""
    model = decode_groups(state)["model"]
    if not model:
        raise PeerError("a state without a model")
    change = {name: (array * np.float32(-0.01) + np.float32(1e-4)) for name, array in model.items()}
    common = encode_groups({"model": change})[:-4]
    starts = range(0, len(common) + 4, chunk_bytes)
    return common, hashlib.sha256(common), tuple(zlib.crc32(common[at : at + chunk_bytes]) for at in starts)


def _put(kept: OrderedDict, key: object, value: object, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)
