"""Blobs whose chunks the server publishes once for several devices.

After the last chunk a device requests those that it has missed, as in any other download.
"""

from dataclasses import replace

from edge_client.agent.session.downloads import accept_chunk, resume
from edge_client.agent.session.events import SendMessage
from edge_client.agent.session.state import Session, Step
from edge_client.transport import chunk_transfer
from schemas.messages import BroadcastEnd, BroadcastProgress
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, Chunk

REPORT_BYTES = 2 * 1024 * 1024
"""Report progress after this many broadcast bytes."""


def take_shared_chunk(session: Session, chunk: Chunk, now: float) -> Step:
    """Take a chunk from a shared topic; report progress now and then.

    A blob that is complete before its last chunk is reported as received to the end: the rest is not needed.
    """
    taken, commands = accept_chunk(session, chunk, now)
    receiving = {
        digest: chunk_transfer.still_coming(download, now) for digest, download in session.receiving.items()
    }
    if taken is not None:
        receiving[taken.ref.digest] = taken
    unreported = session.unreported_bytes + len(chunk.data)
    received = len(chunk.data) + CHUNK_HEADER_BYTES
    shared = None if session.shared_bytes is None else session.shared_bytes + received
    session = replace(session, receiving=receiving, unreported_bytes=unreported, shared_bytes=shared)
    if taken is None or session.task is None:
        return session, commands
    last = taken.ref.chunks - 1
    early = taken.complete and chunk.index < last
    if not early and (unreported < REPORT_BYTES or not session.listens):
        return session, commands
    progress = BroadcastProgress(
        federation=session.federation,
        device=session.device,
        run=session.task.run,
        attempt=session.task.attempt,
        digest=taken.ref.digest,
        index=last if early else chunk.index,
    )
    return replace(session, unreported_bytes=0), [*commands, SendMessage(progress)]


def fetch_missing(session: Session, end: BroadcastEnd, now: float) -> Step:
    """The broadcast of these blobs has ended: request their missing chunks."""
    if not session.is_at(end.run, end.attempt):
        return session, []
    awaited = session.awaited
    return resume(session, [digest for digest in dict.fromkeys(end.digests) if digest in awaited], now)
