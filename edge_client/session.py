"""The session of one device as a pure state machine: from a task offered to a result acknowledged.

    idle -> fetching (blobs it lacks) -> working (training or exporting) -> reporting (until acknowledged)

Large blobs may go past the broker (`depot.bypass`); what does not come that way comes in chunks.

No socket, clock or thread: `step(state, event, now)` returns the next state and the commands to carry out.
Every message may be lost, doubled, reordered or stale; what counts is repeated until it is answered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from edge_client import transfer
from edge_client.depot import bypass
from edge_client.depot.bypass import Bypass, FetchEnded, PutEnded, StopTransfers
from edge_client.memory import KEPT_RUNS, Memory
from edge_client.secure import partaking
from edge_client.secure.partaking import FromGathering, Partaking
from edge_client.session_events import (
    BlobChecked,
    ChunkArrived,
    ChunkLost,
    Command,
    Connected,
    Disconnected,
    Distrusted,
    DrawEntropy,
    EntropyDrawn,
    Event,
    Received,
    Remembered,
    Result,
    RunEnded,
    Send,
    SendChunks,
    Settled,
    StartWork,
    StopWork,
    Tick,
    UpdateMasked,
    WorkDone,
    WorkFailed,
)
from edge_client.transfer import Receiving
from schemas.blobs import BlobRef, Chunk
from schemas.errors import PeerError
from schemas.messages import (
    Acknowledgement,
    AnyMessage,
    BlobRequest,
    BroadcastEnd,
    EntrustedShares,
    FederationEnd,
    Heard,
    MaskCohort,
    Refusal,
    RoundAnnouncement,
    Task,
    TaskReply,
    UnmaskRequest,
    Update,
)
from schemas.values import Reason

RESEND_S, MOST_REPEATS = 5.0, 3
"""How long a result may stay unanswered before it is sent again; twice as long each time, so often."""
HEARD_BYTES = 2 * 1024 * 1024
"""Of what is published for several devices, so much is heard before that is told."""
MAX_LISTENS = 256

Step = tuple["Session", list[Command]]


class Phase(StrEnum):
    """Where the device is in its task."""

    IDLE = "idle"
    FETCHING = "fetching"
    WORKING = "working"
    REPORTING = "reporting"


@dataclass(frozen=True, slots=True)
class Session:
    """All that a device knows of its dealings with the server.

    `held` are the digests in its blob store; `runs` the runs that it has seen under way, `ended` those of
    them that are over, `attempts` the newest attempt of each. `unanswered` is a result that was told and then
    overtaken by another task: whether it counted is still to be heard. `untold` are the bytes heard on shared
    topics since the server was last told, `repeats` how often the result was sent again. `masks` is its part
    in masked rounds, `bypass` what goes past the broker.
    """

    federation: str
    device: str
    held: frozenset[str] = frozenset()
    connected: bool = False
    phase: Phase = Phase.IDLE
    task: Task | None = None
    receiving: Mapping[str, Receiving] = field(default_factory=dict)
    result: Result | None = None
    unanswered: Result | None = None
    resend_at: float = 0.0
    repeats: int = 0
    untold: int = 0
    runs: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    attempts: Mapping[str, int] = field(default_factory=dict)
    masks: Partaking = field(default_factory=Partaking)
    bypass: Bypass = field(default_factory=Bypass)

    def has_all_of(self, ref: BlobRef) -> bool:
        """Whether every chunk of a blob on its way has come and none of them was lost again."""
        receiving = self.receiving.get(ref.digest)
        return receiving is not None and receiving.complete

    @property
    def listens(self) -> tuple[int, ...]:
        """The shared topics on which something is expected that this device lacks."""
        task = self.task
        if task is None or not self.receiving:
            return ()
        awaited = {digest for digest, one in self.receiving.items() if one.expected}
        numbers = {n for name, n in task.channels.items() if task.blobs[name].digest in awaited}
        return tuple(sorted(numbers)[:MAX_LISTENS])

    @property
    def memory(self) -> Memory:
        """What a later process must know: nothing of a task that the server has settled."""
        open_task = self.phase is not Phase.IDLE
        runs = sorted(self.runs)[-KEPT_RUNS:]
        return Memory(
            federation=self.federation,
            device=self.device,
            task=self.task if open_task else None,
            result=self.result if open_task else None,
            runs=tuple(runs),
            attempts={run: self.attempts[run] for run in runs if run in self.attempts},
            masked=partaking.met(self.masks),
        )


def step(session: Session, event: Event, now: float) -> Step:
    """Apply one event; raises `PeerError` for a chunk that does not fit its blob (the state is unchanged)."""
    match event:
        case Connected():
            return _resume(replace(session, connected=True), now)
        case Disconnected():
            return replace(session, connected=False), []
        case Remembered(memory, present):
            return _remembered(session, memory, present, now)
        case ChunkLost(digest, index):
            return _chunk_lost(session, digest, index, now), []
        case Received(Task() as task, present):
            return _offered(session, task, present, now)
        case Received(message):
            return _receive(session, message, now)
        case ChunkArrived(chunk, shared):
            taken = _take_chunk(session, chunk, now)
            return _heard(*taken, chunk, now) if shared else taken
        case BlobChecked(digest, sound):
            return _blob_checked(session, digest, sound, now)
        case FetchEnded():
            return _fetched(session, event, now)
        case PutEnded():
            return _deposited(session, event, now)
        case WorkDone(result):
            return _work_done(session, result, now)
        case WorkFailed():
            return _work_failed(session, event, now)
        case Distrusted():
            return session, _decline(session, event)
        case EntropyDrawn(task, entropy):
            return _entropy_drawn(session, task, entropy, now)
        case UpdateMasked(update):
            return _ended(session, update, now)
        case Tick():
            return _tick(session, now)


def _receive(session: Session, message: AnyMessage, now: float) -> Step:
    match message:
        case BlobRequest():
            return session, [_answer_request(session, message)]
        case Acknowledgement() | Refusal():
            return _answered(session, message)
        case MaskCohort() | EntrustedShares() | UnmaskRequest():
            return _agreeing(session, message, now)
        case RoundAnnouncement():
            known = message.run in session.runs or message.run in session.ended
            seen = session if known else replace(session, runs=session.runs | {message.run})
            over = _is_current_run(seen, message.run) and seen.task and seen.task.round < message.oldest
            return _drop_task(seen) if over else (seen, [])
        case FederationEnd():
            return _end_run(session, message)
        case BroadcastEnd():
            return _pull(session, message, now)
        case _:
            return session, []


def _is_current_run(session: Session, run: str) -> bool:
    return session.task is not None and session.task.run == run


def _end_run(session: Session, end: FederationEnd) -> Step:
    if end.run not in session.runs:
        return session, []
    left, commands = _drop_task(session) if _is_current_run(session, end.run) else (session, [])
    over = replace(left, runs=left.runs - {end.run}, ended=left.ended | {end.run})
    return over, [*commands, RunEnded(end)]


def _offered(session: Session, task: Task, present: Mapping[str, int], now: float) -> Step:
    current = session.task
    if task.run in session.ended or task.attempt < session.attempts.get(task.run, 0):
        return session, []
    if current is not None and (current.run, current.attempt) == (task.run, task.attempt):
        return _repeat(session, task, now)
    if (why := partaking.unwilling(session.masks, task)) is not None:
        return session, [Send(_task_reply(session, task, accepted=False, reason=why[0], detail=why[1]))]
    dropped, commands = _drop_task(session)
    if dropped.unanswered is not None and dropped.unanswered.run != task.run:
        dropped = replace(dropped, unanswered=None)
    begun, more = _begin(dropped, task, present, now, published=True)
    return begun, [_reply(begun, task), *commands, *more]


def _remembered(session: Session, memory: Memory, present: Mapping[str, int], now: float) -> Step:
    """Go on where an earlier process was.

    A result is told again, and nothing is done twice for it. A task without one is taken up by itself, as
    after a cut: whether it is still wanted the retained announcement says, and the server offers it again.
    Only a masked task is over with the process that knew its keys.
    """
    known = replace(
        session,
        runs=session.runs | set(memory.runs),
        attempts={**memory.attempts, **session.attempts},
        masks=replace(session.masks, helped={**memory.masked, **session.masks.helped}),
    )
    task, result = memory.task, memory.result
    if task is None or session.task is not None or (task.masking is not None and result is None):
        return known, []
    if result is None or (isinstance(result, Update) and result.blob.digest not in session.held):
        return _begin(known, task, present, now)
    reporting = replace(known, task=task, phase=Phase.REPORTING, result=result, resend_at=now + RESEND_S)
    # The server is about to offer the task again, and with it the address where this belongs.
    return reporting, [] if bypass.belongs_there(task, result) else _report(result)


def _begin(
    session: Session, task: Task, present: Mapping[str, int], now: float, *, published: bool = False
) -> Step:
    """Fetch what the task lacks and then do it; of a task that is new some blobs will be `published`."""
    commands: list[Command] = []
    pushed = {ref.digest for ref in task.pushed()}
    expected = {task.blobs[name].digest for name in task.channels} if published else set()
    missing = {ref.digest: ref for ref in task.blobs.values() if ref.digest not in session.held}
    beside, fetches = bypass.fetch(bypass.readdressed(Bypass(), task), task, missing.values())
    receiving: dict[str, Receiving] = {}
    for digest, ref in missing.items():
        if digest in beside.fetching:
            continue
        receiving[digest], asks = transfer.start(
            ref, now, present.get(digest, 0), pushed=digest in pushed, expected=digest in expected
        )
        commands += _requests(session, asks)
    begun = replace(
        session,
        # Addresses end and are secrets: what is remembered of the task is without them.
        task=task.model_copy(update={"addresses": None}),
        bypass=beside,
        untold=0,
        phase=Phase.FETCHING,
        receiving=receiving,
        runs=session.runs | {task.run},
        attempts={**session.attempts, task.run: task.attempt},
    )
    fetching, more = _work_when_complete(begun)
    draw: list[Command] = [DrawEntropy(task)] if task.masking is not None else []
    return fetching, [*draw, *fetches, *commands, *more]


def _repeat(session: Session, task: Task, now: float) -> Step:
    """The server asks again for work that is under way or done: say so again."""
    session = replace(session, bypass=bypass.readdressed(session.bypass, task))
    if session.bypass.putting is not None:
        return session, [_reply(session, task)]
    if session.result is None:
        past, fetches = _go_past(session)
        return past, [_reply(session, task), *fetches, *partaking.unheard(session.masks)]
    return _reporting(replace(session, resend_at=now + RESEND_S))


def _go_past(session: Session) -> Step:
    """What comes in chunks, because there was no address for it, goes on past the broker."""
    assert session.task is not None
    # What is being published for several devices comes by itself.
    coming = [one.ref for one in session.receiving.values() if not (one.complete or one.expected)]
    beside, fetches = bypass.fetch(session.bypass, session.task, coming)
    staying = {name: one for name, one in session.receiving.items() if name not in beside.fetching}
    return replace(session, bypass=beside, receiving=staying), list(fetches)


def _reply(session: Session, task: Task) -> Command:
    return Send(_task_reply(session, task, accepted=True, listens=session.listens))


def _task_reply(session: Session, task: Task, *, accepted: bool, **why: Any) -> TaskReply:
    return TaskReply(
        federation=session.federation,
        device=session.device,
        run=task.run,
        round=task.round,
        attempt=task.attempt,
        accepted=accepted,
        **why,
    )


def _drop_task(session: Session) -> Step:
    stop: list[Command] = [StopWork()] if session.phase is Phase.WORKING else []
    stop += [StopTransfers()] if session.bypass.busy else []
    told = session.result if session.phase is Phase.REPORTING else session.unanswered
    idle = replace(session, task=None, phase=Phase.IDLE, receiving={}, result=None, unanswered=told)
    idle = replace(idle, bypass=Bypass())
    return replace(idle, masks=partaking.left(session.masks)), stop


def _requests(session: Session, commands: list[transfer.TransferCommand]) -> list[Command]:
    """Turn the transfer's asks into messages; its other commands are ours as they are."""
    return [
        Send(
            BlobRequest(
                federation=session.federation,
                device=session.device,
                digest=command.ref.digest,
                first=command.first,
                count=command.count,
            )
        )
        if isinstance(command, transfer.Ask)
        else command
        for command in commands
    ]


def _take_chunk(session: Session, chunk: Chunk, now: float) -> Step:
    for digest, receiving in session.receiving.items():
        if digest.startswith(chunk.prefix):
            taken, commands = transfer.accept(receiving, chunk, now)
            return _with_receiving(session, taken), _requests(session, commands)
    return session, []


def _heard(session: Session, commands: list[Command], chunk: Chunk, now: float) -> Step:
    """A chunk came on a shared topic: more will, and now and then the server is told how far it is heard.

    Of a blob that is whole before its last chunk nothing more is heard: as good as all of it.
    """
    receiving = {digest: transfer.still_coming(one, now) for digest, one in session.receiving.items()}
    untold = session.untold + len(chunk.data)
    session = replace(session, receiving=receiving, untold=untold)
    ref = next((one.ref for digest, one in receiving.items() if digest.startswith(chunk.prefix)), None)
    if ref is None or session.task is None:
        return session, commands
    last = ref.chunks - 1
    early = receiving[ref.digest].complete and chunk.index < last
    if not early and (untold < HEARD_BYTES or not session.listens):
        return session, commands
    heard = Heard(
        federation=session.federation,
        device=session.device,
        run=session.task.run,
        attempt=session.task.attempt,
        digest=ref.digest,
        index=last if early else chunk.index,
    )
    return replace(session, untold=0), [*commands, Send(heard)]


def _pull(session: Session, end: BroadcastEnd, now: float) -> Step:
    """Nothing more is published of these blobs: ask for what is missing of them."""
    commands: list[Command] = []
    task = session.task
    if task is None or (task.run, task.attempt) != (end.run, end.attempt):
        return session, []
    receiving = dict(session.receiving)
    for digest in end.digests:
        if digest in receiving and receiving[digest].expected:
            receiving[digest], asks = transfer.resume(receiving[digest], now)
            commands += _requests(session, asks)
    return replace(session, receiving=receiving), commands


def _with_receiving(session: Session, receiving: Receiving) -> Session:
    return replace(session, receiving={**session.receiving, receiving.ref.digest: receiving})


def _chunk_lost(session: Session, digest: str, index: int, now: float) -> Session:
    receiving = session.receiving.get(digest)
    return session if receiving is None else _with_receiving(session, transfer.lost(receiving, index, now))


def _blob_checked(session: Session, digest: str, sound: bool, now: float) -> Step:
    receiving = session.receiving.get(digest)
    held = session.held | {digest} if sound else session.held
    if receiving is None:
        return replace(session, held=held), []
    if not sound:
        again, commands = transfer.start(receiving.ref, now)
        return _with_receiving(session, again), _requests(session, commands)
    rest = {name: other for name, other in session.receiving.items() if name != digest}
    return _work_when_complete(replace(session, held=held, receiving=rest))


def _fetched(session: Session, event: FetchEnded, now: float) -> Step:
    """A blob has come past the broker, or some of it: what is missing comes in chunks."""
    fetch = session.bypass.fetching.get(event.digest)
    if fetch is None or session.task is None:
        return session, []
    beside, again = bypass.fetched(session.bypass, session.task, event)
    session = replace(session, bypass=beside)
    if again is not None:
        return session, [again]
    receiving, asks = transfer.start(fetch.ref, now, event.have)
    # Without a connection nothing can be asked for; all of it is once there is one again.
    wanted = [one for one in asks if session.connected or not isinstance(one, transfer.Ask)]
    return _with_receiving(session, receiving), _requests(session, wanted)


def _deposited(session: Session, event: PutEnded, now: float) -> Step:
    """The result's blob lies in the store, or has to go by chunks: now it can be told."""
    putting, result = session.bypass.putting, session.result
    if putting is None or putting.ref.digest != event.digest or not isinstance(result, Update):
        return session, []
    beside, again = bypass.put_ended(session.bypass, session.task, result, event)
    session = replace(session, bypass=beside, resend_at=now + RESEND_S)
    if again is not None:
        return session, [again]
    told = result.model_copy(update={"deposited": event.done})
    return replace(session, result=told), _report(told)


def _work_when_complete(session: Session) -> Step:
    if session.task is None or session.phase is not Phase.FETCHING:
        return session, []
    if session.receiving or session.bypass.fetching:
        return session, []
    return replace(session, phase=Phase.WORKING), [StartWork(session.task)]


def _work_done(session: Session, result: Result, now: float) -> Step:
    task = session.task
    if task is None or task.masking is None or not isinstance(result, Update):
        return _ended(session, result, now)
    if session.phase is not Phase.WORKING or (task.run, task.attempt) != (result.run, result.attempt):
        return session, []
    return _with_masks(session, partaking.trained(session.masks, result), now)


# --- masks ---
def _entropy_drawn(session: Session, task: Task, entropy: bytes, now: float) -> Step:
    current = session.task
    if current is None or (current.run, current.attempt) != (task.run, task.attempt):
        return session, []
    return _with_masks(session, partaking.join(session.masks, session.device, current, entropy), now)


def _agreeing(session: Session, message: FromGathering, now: float) -> Step:
    """The server goes on with the agreement; raises `PeerError` for what it has no business to say."""
    try:
        return _with_masks(session, partaking.hear(session.masks, message), now)
    except PeerError as error:
        if session.task is None or not partaking.needs(session.masks, message):
            raise
        return _leave_cohort(session, session.task, error, now)


def _with_masks(session: Session, stepped: partaking.Step, now: float) -> Step:
    """Put the next state of the agreement, and what it says, into the session's."""
    masks, commands = stepped
    said = any(isinstance(command, Send) for command in commands)
    resend_at = now + RESEND_S if said else session.resend_at
    return replace(session, masks=masks, resend_at=resend_at), commands


def _leave_cohort(session: Session, task: Task, error: PeerError, now: float) -> Step:
    """The device cannot agree on masks, and nothing better will come: it declines the task."""
    dropped, stop = _drop_task(session)
    reply = _task_reply(session, task, accepted=False, reason=Reason(error.reason), detail=str(error)[:500])
    declined = replace(dropped, task=task, phase=Phase.REPORTING, result=reply, resend_at=now + RESEND_S)
    return declined, [*stop, *_report(reply)]


def _ended(session: Session, result: Result, now: float) -> Step:
    held = session.held | {result.blob.digest} if isinstance(result, Update) else session.held
    task = session.task
    current = task is not None and (task.run, task.attempt) == (result.run, result.attempt)
    if not current or session.phase is not Phase.WORKING:
        return replace(session, held=held), []
    done = replace(
        session, held=held, phase=Phase.REPORTING, result=result, resend_at=now + RESEND_S, repeats=0
    )
    return _reporting(done)


def _reporting(session: Session) -> Step:
    """Tell the result, once its blob is where it belongs."""
    assert session.result is not None
    beside, put = bypass.put(session.bypass, session.task, session.result)
    return replace(session, bypass=beside), _report(session.result) if put is None else [put]


def _report(result: Result) -> list[Command]:
    if isinstance(result, Update) and result.blob.inline:
        return [Send(result), SendChunks(result.blob, 0, 1)]
    return [Send(result)]


def _work_failed(session: Session, event: WorkFailed, now: float) -> Step:
    why = {"reason": event.reason, "detail": event.detail[:500]}
    reply = _task_reply(session, event.task, accepted=False, **why)
    return _work_done(session, reply, now)


def _decline(session: Session, event: Distrusted) -> list[Command]:
    """Say no; but not where the true task of that attempt is here: then what came was made up from it."""
    current, named = session.task, (event.task.run, event.task.attempt)
    if current is not None and (current.run, current.attempt) == named:
        return []
    why = {"reason": event.reason, "detail": event.detail[:500]}
    return [Send(_task_reply(session, event.task, accepted=False, **why))]


def _answer_request(session: Session, request: BlobRequest) -> Command:
    """Only the blob of the pending result is ever given away."""
    result = session.result
    if isinstance(result, Update) and result.blob.digest == request.digest:
        return SendChunks(result.blob, request.first, request.count)
    refusal = Refusal(
        federation=session.federation,
        device=session.device,
        reason=Reason.UNKNOWN_BLOB,
        digest=request.digest,
    )
    return Send(refusal)


def _answered(session: Session, answer: Acknowledgement | Refusal) -> Step:
    """Settle the pending result; an acknowledged update or delivery is kept, to be shown again if asked."""
    refusal = answer if isinstance(answer, Refusal) else None
    late, result = session.unanswered, session.result
    if late is not None and _is_about(answer, late):
        return replace(session, unanswered=None), [Settled(late, refusal)]
    if _out_of_the_cohort(session, answer):
        return _drop_task(session)
    if result is None or not _is_about(answer, result):
        return session, []
    idle = replace(_drop_task(session)[0], unanswered=None)
    if refusal is not None:
        return idle, [Settled(result, refusal)]
    if session.phase is not Phase.REPORTING:
        return session, []
    kept = idle if isinstance(result, TaskReply) else replace(session, phase=Phase.IDLE)
    return kept, [Settled(result)]


def _is_about(answer: Acknowledgement | Refusal, result: Result) -> bool:
    digest = result.blob.digest if isinstance(result, Update) else None
    return (answer.run, answer.attempt, answer.digest) == (result.run, result.attempt, digest)


def _out_of_the_cohort(session: Session, answer: Acknowledgement | Refusal) -> bool:
    """Whether the server goes on without this device's masks, before there is anything else to refuse."""
    task, bare = session.task, isinstance(answer, Refusal) and answer.digest is None
    if task is None or task.masking is None or not bare:
        return False
    return session.result is None and (answer.run, answer.attempt) == (task.run, task.attempt)


def _tick(session: Session, now: float) -> Step:
    if not session.connected:
        return session, []
    commands: list[Command] = []
    receiving = dict(session.receiving)
    for digest, one in session.receiving.items():
        receiving[digest], asks = transfer.tick(one, now)
        commands += _requests(session, asks)
    ticked = replace(session, receiving=receiving)
    if session.bypass.putting is not None:
        return ticked, commands
    if session.phase is Phase.REPORTING and session.result is not None and now >= session.resend_at:
        # Where a thousand wait for their turn, what they repeat must not be what they wait for.
        repeats = min(session.repeats + 1, MOST_REPEATS)
        later = replace(ticked, resend_at=now + RESEND_S * 2**repeats, repeats=repeats)
        return later, [*commands, *_report(session.result)]
    if session.result is None and now >= session.resend_at and (again := partaking.unheard(session.masks)):
        return replace(ticked, resend_at=now + RESEND_S), [*commands, *again]
    return ticked, commands


def _resume(session: Session, now: float) -> Step:
    """The connection is back: ask for missing chunks and repeat the result at once."""
    commands: list[Command] = []
    receiving = dict(session.receiving)
    for digest, one in session.receiving.items():
        receiving[digest], asks = transfer.resume(one, now)
        commands += _requests(session, asks)
    told = session.phase is Phase.REPORTING and session.bypass.putting is None
    if told and session.result is not None:
        commands += _report(session.result)
    commands += partaking.unheard(session.masks)
    return replace(session, receiving=receiving, resend_at=now + RESEND_S, repeats=0), commands
