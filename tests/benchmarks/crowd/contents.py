"""What all devices of one process share: the chunks that came, the blobs they make, the answers to them.

The first device that gets a chunk checks and keeps it; of all later ones it is checked that they are equal to
that, byte by byte. So a thousand devices hold one model, and hash it once.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.blobstore import BlobStore
from edge_client.layers import received_groups
from schemas.blobs import (
    CHUNK_BYTES,
    CHUNK_HEADER_BYTES,
    BlobRef,
    Chunk,
    chunk_header,
    decode_chunk,
    decode_json,
    encode_groups,
)
from schemas.messages import Task
from schemas.submodel import ChannelMap
from tests.benchmarks.crowd.wire import Arrived

MAX_FRAMES, MAX_ANSWERS = 1000, 10


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

    def __init__(self, folder: Path) -> None:
        self._store = BlobStore(folder, durable=False)
        self._held: set[str] = set()
        self._frames: OrderedDict[bytes, tuple[bytes, Chunk]] = OrderedDict()
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
        if ref.digest in self._held:
            return True
        chunks = {c.index: c.data for _, c in self._frames.values() if ref.digest.startswith(c.prefix)}
        data = b"".join(chunks[index] for index in sorted(chunks))
        if hashlib.sha256(data).hexdigest() != ref.digest:
            return False
        self._store.put(data)
        self._held.add(ref.digest)
        return True

    def answer(self, task: Task, number: int) -> Upload:
        """What device `number` has made of its state: a small step, its last number like no other's."""
        key = f"{task.run} {task.attempt} {task.spec.model_dump_json()}"
        if key not in self._answers:
            _put(self._answers, key, self._trained(task), MAX_ANSWERS)
        common, hashed, crcs = self._answers[key]
        tail = np.float32(1e-6 * (1 + number)).tobytes()
        own = hashed.copy()
        own.update(tail)
        ref = BlobRef(digest=own.hexdigest(), size=len(common) + 4, chunk_bytes=CHUNK_BYTES)
        return Upload(ref, common, tail, crcs)

    def _trained(self, task: Task) -> tuple[bytes, hashlib._Hash, tuple[int, ...]]:
        """A hundredth of the model as its change, but for the last number; its hash, its chunks' crcs."""
        channel_map = decode_json(ChannelMap, self._store.path(task.blobs["channel-map"].digest).read_bytes())
        model = received_groups(task, self._store, channel_map)["model"]
        change = {name: model[name] * np.float32(-0.01) + np.float32(1e-4) for name in model}
        common = encode_groups({"model": change})[:-4]
        starts = range(0, len(common) + 4, CHUNK_BYTES)
        crcs = tuple(zlib.crc32(common[at : at + CHUNK_BYTES]) for at in starts)
        return common, hashlib.sha256(common), crcs


def _put(kept: OrderedDict, key: object, value: object, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)
