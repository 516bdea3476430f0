"""Chunks that are published once for several devices, as one of them hears them.

What it has missed when the last of them is out it asks for, as for any other chunk.
"""

from __future__ import annotations

from dataclasses import replace

from edge_client.agent.session.downloads import accepted, resume
from edge_client.agent.session.events import SendMessage
from edge_client.agent.session.state import Session, Step
from edge_client.transport import chunk_transfer
from schemas.messages import BroadcastEnd, BroadcastProgress
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, Chunk

HEARD_BYTES = 2 * 1024 * 1024
"""Of what is published for several devices, so much is heard before that is told."""


def heard(session: Session, chunk: Chunk, now: float) -> Step:
    """A chunk came on a shared topic: more will, and now and then the server is told how far it is heard.

    Of a blob that is whole before its last chunk nothing more is heard: as good as all of it.
    """
    taken, commands = accepted(session, chunk, now)
    receiving = {digest: chunk_transfer.still_coming(one, now) for digest, one in session.receiving.items()}
    if taken is not None:
        receiving[taken.ref.digest] = taken
    untold = session.untold + len(chunk.data)
    known = None if session.heard is None else session.heard + len(chunk.data) + CHUNK_HEADER_BYTES
    session = replace(session, receiving=receiving, untold=untold, heard=known)
    if taken is None or session.task is None:
        return session, commands
    last = taken.ref.chunks - 1
    early = taken.complete and chunk.index < last
    if not early and (untold < HEARD_BYTES or not session.listens):
        return session, commands
    said = BroadcastProgress(
        federation=session.federation,
        device=session.device,
        run=session.task.run,
        attempt=session.task.attempt,
        digest=taken.ref.digest,
        index=last if early else chunk.index,
    )
    return replace(session, untold=0), [*commands, SendMessage(said)]


def pull(session: Session, end: BroadcastEnd, now: float) -> Step:
    """Nothing more is published of these blobs: ask for what is missing of them."""
    if not session.is_at(end.run, end.attempt):
        return session, []
    coming = session.awaited
    return resume(session, [digest for digest in dict.fromkeys(end.digests) if digest in coming], now)
