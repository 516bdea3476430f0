"""Downloads the blobs of a task: from the object store if it has addresses, else in requested chunks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from edge_client.agent.session import work_starts
from edge_client.agent.session.events import Command, DrawEntropy, SendMessage, StartWork
from edge_client.agent.session.state import Session, SessionPhase, Step
from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import Receiving
from edge_client.transport.object_store import http_transfers
from edge_client.transport.object_store.http_transfers import FetchEnded, ObjectStoreTransfers
from schemas.messages import Refusal, Task
from schemas.tensors.chunk_sets import NO_CHUNKS, ChunkSet
from schemas.tensors.chunks import Chunk
from schemas.values import Reason

Asking = Callable[[Receiving, float], tuple[Receiving, list[chunk_transfer.TransferCommand]]]


def begin(
    session: Session, task: Task, present: Mapping[str, ChunkSet], now: float, *, published: bool = False
) -> Step:
    """Fetch the missing blobs, then do the task; `published`: the server is about to broadcast some blobs."""
    commands: list[Command] = []
    pushed = {ref.digest for ref in task.pushed()}
    expected = {task.blobs[name].digest for name in task.channels} if published else set()
    missing = {ref.digest: ref for ref in task.blobs.values() if ref.digest not in session.held}
    transfers, fetches = http_transfers.fetch(
        http_transfers.with_new_addresses(ObjectStoreTransfers(), task), task, missing.values()
    )
    receiving: dict[str, Receiving] = {}
    for digest, ref in missing.items():
        if digest in transfers.fetching:
            continue
        receiving[digest], asks = chunk_transfer.start(
            ref, now, present.get(digest, NO_CHUNKS), pushed=digest in pushed, expected=digest in expected
        )
        commands += _requests(session, asks)
    begun = replace(
        session,
        # Addresses expire and are secrets: the task is stored without them.
        task=task.model_copy(update={"addresses": None}),
        transfers=transfers,
        unreported_bytes=0,
        shared_bytes=0 if published else None,
        fetched_bytes=0,
        phase=SessionPhase.FETCHING,
        receiving=receiving,
        runs=session.runs | {task.run},
        attempts={**session.attempts, task.run: task.attempt},
    )
    fetching, more = _work_when_complete(begun)
    draw: list[Command] = [DrawEntropy(task)] if task.masking is not None else []
    return fetching, [*draw, *fetches, *commands, *more]


def switch_to_object_store(session: Session) -> Step:
    """Fetch from the object store, once there are addresses, what was being requested in chunks."""
    assert session.task is not None
    # Blobs that are being broadcast arrive without requests.
    requested = [
        receiving.ref
        for receiving in session.receiving.values()
        if not (receiving.complete or receiving.expected)
    ]
    transfers, fetches = http_transfers.fetch(session.transfers, session.task, requested)
    remaining = {
        digest: receiving
        for digest, receiving in session.receiving.items()
        if digest not in transfers.fetching
    }
    return replace(session, transfers=transfers, receiving=remaining), list(fetches)


def take_chunk(session: Session, chunk: Chunk, now: float) -> Step:
    """Add a chunk to its blob; raises `PeerError` for one that does not fit."""
    taken, commands = accept_chunk(session, chunk, now)
    return session if taken is None else _with_receiving(session, taken), commands


def accept_chunk(session: Session, chunk: Chunk, now: float) -> tuple[Receiving | None, list[Command]]:
    """The download that a chunk belongs to, with the chunk; None if there is no such download."""
    for digest, receiving in session.receiving.items():
        if digest.startswith(chunk.prefix):
            taken, commands = chunk_transfer.accept(receiving, chunk, now)
            return taken, _requests(session, commands)
    return None, []


def chunk_lost(session: Session, digest: str, index: int, now: float) -> Session:
    receiving = session.receiving.get(digest)
    return (
        session if receiving is None else _with_receiving(session, chunk_transfer.lost(receiving, index, now))
    )


def blob_checked(session: Session, digest: str, sound: bool, now: float) -> Step:
    """A complete blob was verified; download a damaged one again."""
    receiving = session.receiving.get(digest)
    held = session.held | {digest} if sound else session.held
    if receiving is None:
        return replace(session, held=held), []
    if not sound:
        again, commands = chunk_transfer.start(receiving.ref, now)
        return _with_receiving(session, again), [_damaged(session, digest), *_requests(session, commands)]
    rest = {name: other for name, other in session.receiving.items() if name != digest}
    return _work_when_complete(replace(session, held=held, receiving=rest))


def _damaged(session: Session, digest: str) -> Command:
    """Report a digest mismatch: the server's own file may be damaged."""
    refusal = Refusal(
        federation=session.federation,
        device=session.device,
        run=session.task.run if session.task is not None else None,
        reason=Reason.DIGEST_MISMATCH,
        digest=digest,
    )
    return SendMessage(refusal)


def fetch_ended(session: Session, event: FetchEnded, now: float) -> Step:
    """A fetch from the object store has ended: request the missing chunks over MQTT."""
    fetch = session.transfers.fetching.get(event.digest)
    if fetch is None or session.task is None:
        return session, []
    transfers, again = http_transfers.fetched(session.transfers, session.task, event)
    session = replace(session, transfers=transfers, fetched_bytes=session.fetched_bytes + event.moved)
    if again is not None:
        return session, [again]
    receiving, asks = chunk_transfer.start(fetch.ref, now, event.have)
    # Without a connection requests wait: `resume` makes them.
    possible = [ask for ask in asks if session.connected or not isinstance(ask, chunk_transfer.RequestChunks)]
    return _with_receiving(session, receiving), _requests(session, possible)


def tick(session: Session, now: float) -> Step:
    """Repeat requests that were not answered in time."""
    return _asking(session, session.receiving, chunk_transfer.tick, now)


def resume(session: Session, digests: Iterable[str], now: float) -> Step:
    """Request everything that is missing of these blobs."""
    return _asking(session, digests, chunk_transfer.resume, now)


def _work_when_complete(session: Session) -> Step:
    if session.task is None or session.phase is not SessionPhase.FETCHING:
        return session, []
    if session.receiving or session.transfers.fetching:
        return session, []
    starts = work_starts.another(session.starts, session.task)
    return replace(session, phase=SessionPhase.WORKING, starts=starts), [StartWork(session.task)]


def _asking(session: Session, digests: Iterable[str], ask: Asking, now: float) -> Step:
    commands: list[Command] = []
    receiving = dict(session.receiving)
    for digest in digests:
        receiving[digest], asks = ask(receiving[digest], now)
        commands += _requests(session, asks)
    return replace(session, receiving=receiving), commands


def _requests(session: Session, commands: list[chunk_transfer.TransferCommand]) -> list[Command]:
    """The transfer's commands, with its requests as messages."""
    return [
        SendMessage(command.request(session.federation, session.device))
        if isinstance(command, chunk_transfer.RequestChunks)
        else command
        for command in commands
    ]


def _with_receiving(session: Session, receiving: Receiving) -> Session:
    return replace(session, receiving={**session.receiving, receiving.ref.digest: receiving})
