"""The blobs of a task on their way in: past the broker where they may go, else in chunks asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from edge_client.agent.session.events import Command, DrawEntropy, SendMessage, StartWork
from edge_client.agent.session.state import Session, SessionPhase, Step
from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import Receiving
from edge_client.transport.object_store import http_transfers
from edge_client.transport.object_store.http_transfers import Bypass, FetchEnded
from schemas.messages import Refusal, Task
from schemas.tensors.chunks import Chunk
from schemas.values import Reason

Asking = Callable[[Receiving, float], tuple[Receiving, list[chunk_transfer.TransferCommand]]]


def begin(
    session: Session, task: Task, present: Mapping[str, int], now: float, *, published: bool = False
) -> Step:
    """Fetch what the task lacks and then do it; of a task that is new some blobs will be `published`."""
    commands: list[Command] = []
    pushed = {ref.digest for ref in task.pushed()}
    expected = {task.blobs[name].digest for name in task.channels} if published else set()
    missing = {ref.digest: ref for ref in task.blobs.values() if ref.digest not in session.held}
    beside, fetches = http_transfers.fetch(http_transfers.readdressed(Bypass(), task), task, missing.values())
    receiving: dict[str, Receiving] = {}
    for digest, ref in missing.items():
        if digest in beside.fetching:
            continue
        receiving[digest], asks = chunk_transfer.start(
            ref, now, present.get(digest, 0), pushed=digest in pushed, expected=digest in expected
        )
        commands += _requests(session, asks)
    begun = replace(
        session,
        # Addresses end and are secrets: what is remembered of the task is without them.
        task=task.model_copy(update={"addresses": None}),
        bypass=beside,
        untold=0,
        heard=0 if published else None,
        fetched=0,
        phase=SessionPhase.FETCHING,
        receiving=receiving,
        runs=session.runs | {task.run},
        attempts={**session.attempts, task.run: task.attempt},
    )
    fetching, more = _work_when_complete(begun)
    draw: list[Command] = [DrawEntropy(task)] if task.masking is not None else []
    return fetching, [*draw, *fetches, *commands, *more]


def go_past(session: Session) -> Step:
    """What comes in chunks, because there was no address for it, goes on past the broker."""
    assert session.task is not None
    # What is being published for several devices comes by itself.
    coming = [one.ref for one in session.receiving.values() if not (one.complete or one.expected)]
    beside, fetches = http_transfers.fetch(session.bypass, session.task, coming)
    staying = {name: one for name, one in session.receiving.items() if name not in beside.fetching}
    return replace(session, bypass=beside, receiving=staying), list(fetches)


def take_chunk(session: Session, chunk: Chunk, now: float) -> Step:
    """Put a chunk where it belongs; raises `PeerError` for one that does not fit its blob."""
    taken, commands = accepted(session, chunk, now)
    return session if taken is None else _with_receiving(session, taken), commands


def accepted(session: Session, chunk: Chunk, now: float) -> tuple[Receiving | None, list[Command]]:
    """The blob that a chunk belongs to, with it; None where no such blob is on its way."""
    for digest, receiving in session.receiving.items():
        if digest.startswith(chunk.prefix):
            taken, commands = chunk_transfer.accept(receiving, chunk, now)
            return taken, _requests(session, commands)
    return None, []


def chunk_lost(session: Session, digest: str, index: int, now: float) -> Session:
    """A chunk that came could not be kept: it has to come again."""
    receiving = session.receiving.get(digest)
    return (
        session if receiving is None else _with_receiving(session, chunk_transfer.lost(receiving, index, now))
    )


def blob_checked(session: Session, digest: str, sound: bool, now: float) -> Step:
    """A blob is whole, or has to come once more."""
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
    """Tell the server that what it sent is not the blob of that digest: its file may be damaged."""
    refusal = Refusal(
        federation=session.federation,
        device=session.device,
        run=session.task.run if session.task is not None else None,
        reason=Reason.DIGEST_MISMATCH,
        digest=digest,
    )
    return SendMessage(refusal)


def fetched(session: Session, event: FetchEnded, now: float) -> Step:
    """A blob has come past the broker, or some of it: what is missing comes in chunks."""
    fetch = session.bypass.fetching.get(event.digest)
    if fetch is None or session.task is None:
        return session, []
    beside, again = http_transfers.fetched(session.bypass, session.task, event)
    session = replace(session, bypass=beside, fetched=session.fetched + event.moved)
    if again is not None:
        return session, [again]
    receiving, asks = chunk_transfer.start(fetch.ref, now, event.have)
    # Without a connection nothing can be asked for; all of it is once there is one again.
    wanted = [one for one in asks if session.connected or not isinstance(one, chunk_transfer.Ask)]
    return _with_receiving(session, receiving), _requests(session, wanted)


def tick(session: Session, now: float) -> Step:
    """Ask again for what does not come."""
    return _asking(session, session.receiving, chunk_transfer.tick, now)


def resume(session: Session, digests: Iterable[str], now: float) -> Step:
    """Ask at once for all that is missing of these blobs."""
    return _asking(session, digests, chunk_transfer.resume, now)


def _work_when_complete(session: Session) -> Step:
    if session.task is None or session.phase is not SessionPhase.FETCHING:
        return session, []
    if session.receiving or session.bypass.fetching:
        return session, []
    return replace(session, phase=SessionPhase.WORKING), [StartWork(session.task)]


def _asking(session: Session, digests: Iterable[str], ask: Asking, now: float) -> Step:
    commands: list[Command] = []
    receiving = dict(session.receiving)
    for digest in digests:
        receiving[digest], asks = ask(receiving[digest], now)
        commands += _requests(session, asks)
    return replace(session, receiving=receiving), commands


def _requests(session: Session, commands: list[chunk_transfer.TransferCommand]) -> list[Command]:
    """Turn the transfer's asks into messages; its other commands are ours as they are."""
    return [
        SendMessage(command.request(session.federation, session.device))
        if isinstance(command, chunk_transfer.Ask)
        else command
        for command in commands
    ]


def _with_receiving(session: Session, receiving: Receiving) -> Session:
    return replace(session, receiving={**session.receiving, receiving.ref.digest: receiving})
