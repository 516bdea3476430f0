"""Downloads the blobs of a task: from the object store if it has addresses, else in requested chunks."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from edge_client.agent.session import events, snapshot
from edge_client.agent.session.state import Session, SessionPhase, Step
from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import Receiving
from edge_client.transport.object_store import http_transfers
from schemas.errors import Reason
from schemas.messages import BroadcastEnd, BroadcastProgress, Refusal, Task
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, NO_CHUNKS, Chunk, ChunkSet

Asking = Callable[[Receiving, float], tuple[Receiving, list[chunk_transfer.TransferCommand]]]


def begin(
    session: Session, task: Task, present: Mapping[str, ChunkSet], now: float, *, published: bool = False
) -> Step:
    """Fetch the missing blobs, then do the task; `published`: the server is about to broadcast some blobs."""
    commands: list[events.Command] = []
    pushed = {ref.digest for ref in task.pushed_blobs()}
    expected = {task.blobs[name].digest for name in task.channels} if published else set()
    missing = {ref.digest: ref for ref in task.blobs.values() if ref.digest not in session.held}
    addressed = http_transfers.with_new_addresses(http_transfers.ObjectStoreTransfers(), task)
    transfers, fetches = http_transfers.fetch_blobs(addressed, task, missing.values())
    receiving: dict[str, Receiving] = {}
    for digest, ref in missing.items():
        if digest in transfers.fetching:
            continue
        receiving[digest], asks = chunk_transfer.start_transfer(
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
    draw: list[events.Command] = [events.DrawEntropy(task)] if task.masking is not None else []
    return fetching, [*draw, *fetches, *commands, *more]


def switch_to_object_store(session: Session) -> Step:
    """Fetch from the object store, once there are addresses, what was being requested in chunks."""
    assert session.task is not None
    # Blobs that are being broadcast arrive without requests.
    downloads = session.receiving.values()
    requested = [each.ref for each in downloads if not (each.complete or each.expected)]
    transfers, fetches = http_transfers.fetch_blobs(session.transfers, session.task, requested)
    remaining = {each.ref.digest: each for each in downloads if each.ref.digest not in transfers.fetching}
    return replace(session, transfers=transfers, receiving=remaining), list(fetches)


def take_chunk(session: Session, chunk: Chunk, now: float) -> Step:
    """Add a chunk to its blob; raises `PeerError` for one that does not fit."""
    taken, commands = accept_chunk(session, chunk, now)
    return session if taken is None else _with_receiving(session, taken), commands


def accept_chunk(session: Session, chunk: Chunk, now: float) -> tuple[Receiving | None, list[events.Command]]:
    """The download that a chunk belongs to, with the chunk; None if there is no such download."""
    for digest, receiving in session.receiving.items():
        if digest.startswith(chunk.prefix):
            taken, commands = chunk_transfer.accept(receiving, chunk, now)
            return taken, _requests(session, commands)
    return None, []


def chunk_lost(session: Session, digest: str, index: int, now: float) -> Session:
    if (receiving := session.receiving.get(digest)) is None:
        return session
    return _with_receiving(session, chunk_transfer.on_lost_chunk(receiving, index, now))


def blob_checked(session: Session, digest: str, sound: bool, now: float) -> Step:
    """A complete blob was verified; download a damaged one again."""
    receiving = session.receiving.get(digest)
    held = session.held | {digest} if sound else session.held
    if receiving is None:
        return replace(session, held=held), []
    if not sound:
        again, commands = chunk_transfer.start_transfer(receiving.ref, now)
        return _with_receiving(session, again), [
            _report_damage(session, digest),
            *_requests(session, commands),
        ]
    rest = {name: other for name, other in session.receiving.items() if name != digest}
    return _work_when_complete(replace(session, held=held, receiving=rest))


def _report_damage(session: Session, digest: str) -> events.Command:
    """Report a digest mismatch: the server's own file may be damaged."""
    refusal = Refusal(
        federation=session.federation,
        device=session.device,
        run=session.task.run if session.task is not None else None,
        reason=Reason.DIGEST_MISMATCH,
        digest=digest,
    )
    return events.SendMessage(refusal)


def fetch_ended(session: Session, event: http_transfers.FetchEnded, now: float) -> Step:
    """A fetch from the object store has ended: request the missing chunks over MQTT."""
    fetch = session.transfers.fetching.get(event.digest)
    if fetch is None or session.task is None:
        return session, []
    transfers, again = http_transfers.on_fetch_end(session.transfers, session.task, event)
    session = replace(session, transfers=transfers, fetched_bytes=session.fetched_bytes + event.moved)
    if again is not None:
        return session, [again]
    receiving, asks = chunk_transfer.start_transfer(fetch.ref, now, event.have)
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
    missing = session.receiving or session.transfers.fetching
    if session.task is None or session.phase is not SessionPhase.FETCHING or missing:
        return session, []
    starts = count_start(session.starts, session.task)
    return replace(session, phase=SessionPhase.WORKING, starts=starts), [events.StartWork(session.task)]


def _asking(session: Session, digests: Iterable[str], ask: Asking, now: float) -> Step:
    commands: list[events.Command] = []
    receiving = dict(session.receiving)
    for digest in digests:
        receiving[digest], asks = ask(receiving[digest], now)
        commands += _requests(session, asks)
    return replace(session, receiving=receiving), commands


def _requests(session: Session, commands: list[chunk_transfer.TransferCommand]) -> list[events.Command]:
    return [*events.as_messages(commands, session.federation, session.device)]


def _with_receiving(session: Session, receiving: Receiving) -> Session:
    return replace(session, receiving={**session.receiving, receiving.ref.digest: receiving})


# Blobs whose chunks the server publishes once for several devices.
#
# After the last chunk a device requests those that it has missed, as in any other download.

REPORT_BYTES = 2 * 1024 * 1024  # report progress after this many broadcast bytes


def take_shared_chunk(session: Session, chunk: Chunk, now: float) -> Step:
    """Take a chunk from a shared topic; report progress now and then.

    A blob that is complete before its last chunk is reported as received to the end: the rest is not needed.
    """
    taken, commands = accept_chunk(session, chunk, now)
    downloads = session.receiving.items()
    receiving = {digest: chunk_transfer.still_coming(download, now) for digest, download in downloads}
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
    return replace(session, unreported_bytes=0), [*commands, events.SendMessage(progress)]


def fetch_missing(session: Session, end: BroadcastEnd, now: float) -> Step:
    """The broadcast of these blobs has ended: request their missing chunks."""
    if not session.is_at(end.run, end.attempt):
        return session, []
    awaited = session.awaited_digests
    return resume(session, [digest for digest in dict.fromkeys(end.digests) if digest in awaited], now)


# Counts how often the work on a task was begun: one that ends the process is not begun for ever.

MAX_STARTS = 2  # starts of the same work that may end with the process
_ENDED = f"the client's process has ended {MAX_STARTS} times during this task without a result"
GIVEN_UP = f"{_ENDED}, as it does without memory"


def count_start(starts: snapshot.WorkStarts | None, task: Task) -> snapshot.WorkStarts:
    if starts is None or not _is_of(starts, task):
        return snapshot.WorkStarts(run=task.run, attempt=task.attempt)
    return starts.model_copy(update={"count": starts.count + 1})


def count_epoch(starts: snapshot.WorkStarts | None, task: Task, epoch: int) -> snapshot.WorkStarts | None:
    """The count after an epoch: work that gets further than ever before has begun once."""
    if starts is None or not _is_of(starts, task) or epoch <= starts.epoch:
        return starts
    return starts.model_copy(update={"count": 1, "epoch": epoch})


def without_last_start(starts: snapshot.WorkStarts | None) -> snapshot.WorkStarts | None:
    """The count without the last start, which ended with the process as its owner wished."""
    return starts and starts.model_copy(update={"count": max(0, starts.count - 1)})


def is_given_up(starts: snapshot.WorkStarts | None, task: Task) -> bool:
    """Whether the work on this task may not be begun again."""
    return starts is not None and _is_of(starts, task) and starts.count >= MAX_STARTS


def _is_of(starts: snapshot.WorkStarts, task: Task) -> bool:
    return (starts.run, starts.attempt) == (task.run, task.attempt)
