"""A disk that may be full or failing: what it will not take never ends the device."""

from __future__ import annotations

import logging

from edge_client.agent.session.events import BlobChecked, ChunkLost, Settled
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.transport.chunk_transfer import WriteChunk
from schemas.messages import Update
from schemas.tensors.chunks import BlobRef

log = logging.getLogger(__name__)


def keep_chunk(store: BlobStore, chunk: WriteChunk) -> ChunkLost | None:
    """Write a chunk down; tells where that could not be done."""
    try:
        store.write_chunk(chunk.ref, chunk.index, chunk.data, chunk.crc)
    except OSError as error:
        log.warning("chunk %d of %s cannot be kept: %s", chunk.index, chunk.ref.digest[:16], error)
        return ChunkLost(chunk.ref.digest, chunk.index)
    return None


def keep_blob(store: BlobStore, ref: BlobRef) -> BlobChecked | ChunkLost:
    """Check a blob and keep it; where the disk fails, it is tried again when its last chunk comes again."""
    try:
        return BlobChecked(ref.digest, store.verify(ref))
    except OSError as error:
        log.warning("blob %s cannot be kept: %s", ref.digest[:16], error)
        return ChunkLost(ref.digest, ref.chunks - 1)


def forget_others(store: BlobStore, needed: frozenset[str]) -> None:
    """Make room: only the blobs that are needed stay."""
    try:
        store.keep_only(needed)
    except OSError as error:
        log.warning("what is no longer needed cannot be removed: %s", error)


def settle(private: PrivateState, settled: Settled) -> None:
    """Let what was kept of a round count, or not, as the server has said."""
    result = settled.result
    if not isinstance(result, Update):
        return
    put_down = private.commit if settled.refusal is None else private.discard
    try:
        put_down(result.run, result.round, result.attempt)
    except OSError as error:
        log.warning("round %d: what this device keeps of it cannot be put down: %s", result.round, error)
