"""Write a receiver's chunks into the part files of the blobs that the server expects."""

from __future__ import annotations

from collections import deque

from edge_client.storage.blob_store import BlobStore
from edge_server.transport.receivers.messages import Expect, Placed
from schemas.tensors.blobs import BlobRef, Chunk

MAX_EARLY = 64
"""Chunks kept that arrive before their blob is expected, as inline blobs do: 16 MB."""


class ChunkPlacement:
    """Writes chunks to the server's blob store; only the newest claim of each device counts."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._expected: dict[str, BlobRef] = {}
        self._early: deque[tuple[str, Chunk]] = deque(maxlen=MAX_EARLY)

    def expect(self, expected: Expect) -> list[Placed]:
        """Expect a device's chunks of this blob; write those that arrived early."""
        self._expected[expected.device] = expected.blob
        early = [chunk for device, chunk in self._early if device == expected.device]
        kept = [pair for pair in self._early if pair[0] != expected.device]
        self._early.clear()
        self._early.extend(kept)
        return [placed for chunk in early for placed in self.take(expected.device, chunk)]

    def take(self, device: str, chunk: Chunk) -> list[Placed]:
        """Write an expected chunk; keep an unexpected one for a while.

        A chunk that does not fit its blob is reported, too: the server answers its device. Raises `OSError`
        if the disk is full.
        """
        ref = self._expected.get(device)
        if ref is None or not ref.digest.startswith(chunk.prefix):
            self._early.append((device, chunk))
            return []
        if chunk.index < ref.chunks and len(chunk.data) == ref.chunk_size(chunk.index):
            self._store.write_chunk(ref, chunk.index, chunk.data, chunk.crc)
        return [Placed(device=device, prefix=chunk.prefix, index=chunk.index, size=len(chunk.data))]
