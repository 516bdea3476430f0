"""What all devices of one process share: received chunks, the blobs they form, and the answers.

The first device that receives a chunk checks and stores it; later copies are compared with it byte by byte.
So a thousand devices store one model and hash it once.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.compression.chain import make_chain
from edge_client.compression.decoding import decode_groups
from edge_client.compression.layered_model import received_groups
from edge_client.storage.blob_store import BlobStore
from schemas.messages import Task
from schemas.submodel import ChannelMap
from schemas.tensors.chunks import (
    CHUNK_BYTES,
    CHUNK_HEADER_BYTES,
    BlobRef,
    Chunk,
    chunk_header,
    decode_chunk,
    decode_json,
)
from tests.benchmarks.crowd.wire import Arrived

MAX_FRAMES, MAX_ANSWERS = 1000, 10
TAIL_BYTES = 4
SKIPPED = struct.pack("<II", 0x184D2A50, TAIL_BYTES)
"""Header of a skippable frame (RFC 8878, section 3.1.2): packed answers differ only in that frame."""


@dataclass(frozen=True)
class Upload:
    """One device's answer: `common`, which all answers of its tier share, and four bytes of its own.

    `crcs` are the checksums of the common part of each chunk.
    """

    ref: BlobRef
    common: bytes
    tail: bytes
    crcs: tuple[int, ...]

    def frame(self, index: int) -> tuple[bytes, memoryview | bytes]:
        """Chunk `index` as header and data."""
        start = index * self.ref.chunk_bytes
        stop, end = start + self.ref.chunk_size(index), len(self.common)
        shared = memoryview(self.common)[start:stop]
        if stop <= end:
            return chunk_header(self.ref.digest, index, self.crcs[index]), shared
        own = self.tail[max(0, start - end) : stop - end]
        crc = zlib.crc32(own, self.crcs[index] if index < len(self.crcs) else 0)
        return chunk_header(self.ref.digest, index, crc), b"".join((shared, own))


class Contents:
    """The blobs of one process."""

    def __init__(self, folder: Path) -> None:
        self._store = BlobStore(folder, durable=False)
        self._held: set[str] = set()
        self._frames: OrderedDict[bytes, tuple[bytes, Chunk]] = OrderedDict()
        self._answers: OrderedDict[str, tuple[bytes, hashlib._Hash, tuple[int, ...]]] = OrderedDict()

    def chunk(self, arrived: Arrived) -> Chunk:
        """Decode a received chunk; raises `PeerError` for a damaged one."""
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
        """Whether the chunks of a blob, all received, match its digest; the blob is then stored."""
        if ref.digest in self._held:
            return True
        chunks = {c.index: c.data for _, c in self._frames.values() if ref.digest.startswith(c.prefix)}
        data = b"".join(chunks[index] for index in sorted(chunks))
        if hashlib.sha256(data).hexdigest() != ref.digest:
            return False
        self._store.put_blob(data)
        self._held.add(ref.digest)
        return True

    def answer(self, task: Task, number: int) -> Upload:
        """The update of device `number`: a small step whose last number is unique to the device."""
        key = f"{task.run} {task.attempt} {task.spec.model_dump_json()}"
        if key not in self._answers:
            _put(self._answers, key, self._trained(task), MAX_ANSWERS)
        common, hashed, crcs = self._answers[key]
        tail = own_tail(number, packed=make_chain(task.uplink).pack is not None)
        own = hashed.copy()
        own.update(tail)
        ref = BlobRef(digest=own.hexdigest(), size=len(common) + len(tail), chunk_bytes=CHUNK_BYTES)
        return Upload(ref, common, tail, crcs)

    def _trained(self, task: Task) -> tuple[bytes, hashlib._Hash, tuple[int, ...]]:
        """A hundredth of the model as an encoded update, its hash, and the checksums of its chunks."""
        channel_map = decode_json(
            ChannelMap, self._store.blob_path(task.blobs["channel-map"].digest).read_bytes()
        )
        model = decode_groups(received_groups(task, self._store, channel_map))["model"]
        change = {name: model[name] * np.float32(-0.01) + np.float32(1e-4) for name in model}
        chain = make_chain(task.uplink)
        ref = self._store.put_groups(chain.encode(change, seed=0).groups, write=chain.write)
        data = self._store.blob_path(ref.digest).read_bytes()
        common = data + SKIPPED if chain.pack else data[:-TAIL_BYTES]
        crcs = tuple(zlib.crc32(common[at : at + CHUNK_BYTES]) for at in range(0, len(common), CHUNK_BYTES))
        return common, hashlib.sha256(common), crcs


def own_tail(number: int, *, packed: bool) -> bytes:
    """The last bytes of device `number`'s answer: its last number, or bytes that an unpacker skips."""
    return struct.pack("<I", number) if packed else np.float32(1e-6 * (1 + number)).tobytes()


def _put(kept: OrderedDict, key: object, value: object, most: int) -> None:
    kept[key] = value
    if len(kept) > most:
        kept.popitem(last=False)
