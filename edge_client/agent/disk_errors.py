"""Writes that a full or failing disk may refuse, which must never end the device."""

import logging

from edge_client.agent.session.events import BlobChecked, ChunkLost
from edge_client.storage.blob_store import BlobStore
from edge_client.transport.chunk_transfer import WriteChunk
from schemas.tensors.chunks import BlobRef

log = logging.getLogger(__name__)


def keep_chunk(store: BlobStore, chunk: WriteChunk) -> ChunkLost | None:
    """Write a chunk; returns the event if that fails."""
    try:
        store.write_chunk(chunk.ref, chunk.index, chunk.data, chunk.crc)
    except OSError as error:
        log.warning("chunk %d of %s cannot be kept: %s", chunk.index, chunk.ref.digest[:16], error)
        return ChunkLost(chunk.ref.digest, chunk.index)
    return None


def keep_blob(store: BlobStore, ref: BlobRef) -> BlobChecked | ChunkLost:
    """Verify a complete blob; if the disk fails, its last chunk is requested again and then retried."""
    try:
        return BlobChecked(ref.digest, store.verify(ref))
    except OSError as error:
        log.warning("blob %s cannot be kept: %s", ref.digest[:16], error)
        return ChunkLost(ref.digest, ref.chunks - 1)


def forget_others(store: BlobStore, needed: frozenset[str]) -> None:
    """Remove all blobs but those needed."""
    try:
        store.keep_only(needed)
    except OSError as error:
        log.warning("what is no longer needed cannot be removed: %s", error)
