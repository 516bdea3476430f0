"""Where chunks belong that come to a receiver: into the part files of the blobs that the server expects."""

from __future__ import annotations

from collections import deque

from edge_client.storage.blob_store import BlobStore
from edge_server.transport.receivers.messages import Expect, Placed
from schemas.tensors.blobs import BlobRef, Chunk

MAX_EARLY = 64
"""Of chunks that come before the word that they are expected, as small blobs are pushed along: 16 MB."""


class ChunkPlacement:
    """Writes chunks to the store that the server reads from; of each device only its newest claim counts."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._expected: dict[str, BlobRef] = {}
        self._early: deque[tuple[str, Chunk]] = deque(maxlen=MAX_EARLY)

    def expect(self, told: Expect) -> list[Placed]:
        """A device's chunks of this blob have a place from now on; those that came early are put there."""
        self._expected[told.device] = told.blob
        early = [chunk for device, chunk in self._early if device == told.device]
        kept = [pair for pair in self._early if pair[0] != told.device]
        self._early.clear()
        self._early.extend(kept)
        return [placed for chunk in early for placed in self.take(told.device, chunk)]

    def take(self, device: str, chunk: Chunk) -> list[Placed]:
        """Put a chunk in its place; what is not expected waits, for a while.

        One that does not fit its blob is told all the same: the server knows what to say to its device.
        Raises `OSError` where the disk takes no more.
        """
        ref = self._expected.get(device)
        if ref is None or not ref.digest.startswith(chunk.prefix):
            self._early.append((device, chunk))
            return []
        if chunk.index < ref.chunks and len(chunk.data) == ref.chunk_size(chunk.index):
            self._store.write_chunk(ref, chunk.index, chunk.data, chunk.crc)
        return [Placed(device=device, prefix=chunk.prefix, index=chunk.index, size=len(chunk.data))]
