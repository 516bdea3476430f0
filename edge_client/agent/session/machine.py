"""The session of one device as a pure state machine: from a task offered to a result acknowledged.

    idle -> fetching (blobs it lacks) -> working (training or exporting) -> reporting (until acknowledged)

`downloads` fetches a task's blobs, also those that are published once for several devices, `results` reports
what the task ended in, `secure_aggregation` runs the mask agreement.
No socket, clock or thread: `step(session, event, now)` returns the next state and the commands to execute.
Every message may be lost, duplicated, reordered or stale; important ones are repeated until answered.
"""

from collections.abc import Mapping
from dataclasses import replace

from edge_client.agent.session import downloads, events, results, secure_aggregation, secure_participation
from edge_client.agent.session.events import Command, RunEnded, SendMessage
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.agent.session.state import RESEND_S, Session, SessionPhase, Step, drop_task, task_reply
from edge_client.transport.object_store import http_transfers
from schemas import errors, messages
from schemas.messages.message import ServedMessage
from schemas.tensors.chunks import ChunkSet


def check_epoch(session: Session, message: messages.AnyMessage) -> None:
    """Raise `PeerError` for a message about a run of which a newer epoch is known."""
    run, epoch = _epoch_of(message)
    known = session.epochs.get(run, 0)
    if epoch < known:
        said = f"'{message.kind}' of run {run} by a server that was replaced"
        detail = f"{said}: its epoch is {epoch or 'the first'}, the newest is {known}"
        raise errors.PeerError(detail, reason=errors.Reason.SUPERSEDED)


def note_epoch(session: Session, message: messages.AnyMessage) -> Session:
    """Remember the epoch of a message that was accepted.

    One that names no run says nothing of the epoch of those that name none either.
    """
    run, epoch = _epoch_of(message)
    if not run or epoch <= session.epochs.get(run, 0):
        return session
    return replace(session, epochs={**session.epochs, run: epoch})


def _epoch_of(message: messages.AnyMessage) -> tuple[str, int]:
    """A message's run, empty if it names none, and its epoch, 0 in the first one."""
    if not isinstance(message, ServedMessage):
        return "", 0
    return getattr(message, "run", None) or "", message.epoch or 0


__all__ = ["RESEND_S", "Session", "SessionPhase", "Step", "step"]


def step(session: Session, event: events.Event, now: float) -> Step:
    """Apply one event.

    Raises `PeerError` for a chunk that does not fit its blob and for a message of a replaced server (the
    state is unchanged).
    """
    match event:
        case events.Connected():
            return _resume(replace(session, connected=True), now)
        case events.Disconnected():
            return replace(session, connected=False), []
        case events.SessionRestored(snapshot, present):
            return _on_restored(session, snapshot, present, now)
        case events.EpochReached(task, epoch):
            return replace(session, starts=downloads.count_epoch(session.starts, task, epoch)), []
        case events.Stopping():
            if session.phase is not SessionPhase.WORKING:
                return session, []
            return replace(session, starts=downloads.without_last_start(session.starts)), []
        case events.ChunkLost(digest, index):
            return downloads.chunk_lost(session, digest, index, now), []
        case events.Received(message):
            check_epoch(session, message)
            return _receive(note_epoch(session, message), event, now)
        case events.ChunkArrived(chunk, shared):
            take = downloads.take_shared_chunk if shared else downloads.take_chunk
            return take(session, chunk, now)
        case events.BlobChecked(digest, sound):
            return downloads.blob_checked(session, digest, sound, now)
        case events.BlobsDiscarded(held):
            return replace(session, held=held), []
        case events.ChunkBytesLimited(chunk_bytes):
            return results.limit_chunks(session, chunk_bytes), []
        case http_transfers.FetchEnded():
            return downloads.fetch_ended(session, event, now)
        case http_transfers.PutEnded():
            return results.upload_ended(session, event, now)
        case events.WorkDone(result):
            return results.work_done(session, result, now)
        case events.WorkFailed():
            return results.work_failed(session, event, now)
        case events.Declined():
            return session, _decline(session, event)
        case events.GivenBack(detail):
            return _give_back(session, detail)
        case events.EntropyDrawn(task, entropy):
            return secure_aggregation.entropy_drawn(session, task, entropy, now)
        case events.UpdateMasked(update):
            return results.work_ended(session, update, now)
        case events.Tick():
            return _tick(session, now)


def _receive(session: Session, event: events.Received, now: float) -> Step:
    match message := event.message:
        case messages.TrainTask() | messages.DeliverTask():
            return _on_offer(session, message, event.present, now)
        case messages.BlobRequest():
            return session, [results.answer_request(session, message)]
        case messages.Acknowledgement() | messages.Refusal():
            return results.result_answered(session, message)
        case messages.MaskCohort() | messages.EntrustedShares() | messages.UnmaskRequest():
            return secure_aggregation.receive(session, message, now)
        case messages.RoundAnnouncement():
            known = message.run in session.runs or message.run in session.ended_runs
            seen = session if known else replace(session, runs=session.runs | {message.run})
            over = _is_current_run(seen, message.run) and seen.task and seen.task.round < message.oldest
            return drop_task(seen) if over else (seen, [])
        case messages.FederationEnd():
            return _end_run(session, message)
        case messages.BroadcastEnd():
            return downloads.fetch_missing(session, message, now)
        case _:
            return session, []


def _is_current_run(session: Session, run: str) -> bool:
    return session.task is not None and session.task.run == run


def _end_run(session: Session, end: messages.FederationEnd) -> Step:
    if end.run not in session.runs:
        return session, []
    left, commands = drop_task(session) if _is_current_run(session, end.run) else (session, [])
    over = replace(left, runs=left.runs - {end.run}, ended_runs=left.ended_runs | {end.run})
    return over, [*commands, RunEnded(end)]


def _on_offer(session: Session, task: messages.Task, present: Mapping[str, ChunkSet], now: float) -> Step:
    if task.run in session.ended_runs or task.attempt < session.attempts.get(task.run, 0):
        return session, []
    if session.is_at(task.run, task.attempt):
        return _repeat(session, task, now)
    if (why := secure_participation.refusal_reason(session.masks, task)) is not None:
        return session, [SendMessage(task_reply(session, task, accepted=False, reason=why[0], detail=why[1]))]
    if downloads.is_given_up(session.starts, task):
        return session, [_given_up(session, task)]
    dropped, commands = drop_task(session)
    if dropped.unanswered is not None and dropped.unanswered.run != task.run:
        dropped = replace(dropped, unanswered=None)
    begun, more = downloads.begin(dropped, task, present, now, published=True)
    return begun, [_reply(begun, task), *commands, *more]


def _on_restored(
    session: Session, snapshot: SessionSnapshot, present: Mapping[str, ChunkSet], now: float
) -> Step:
    """Resume the task of an earlier process.

    A result is sent again without repeating work. A task without a result is resumed at once, as after a lost
    connection: the announcement and the next offer say whether it is still wanted. A masked task without a
    result ends: its keys were lost with the process. So does one that has ended several processes.
    """
    known = replace(
        session,
        runs=session.runs | set(snapshot.runs),
        attempts={**snapshot.attempts, **session.attempts},
        epochs={**snapshot.epochs, **session.epochs},
        masks=replace(session.masks, helped={**snapshot.masked, **session.masks.helped}),
        starts=session.starts or snapshot.starts,
    )
    task, result = snapshot.task, snapshot.result
    if task is None or session.task is not None or (task.masking is not None and result is None):
        return known, []
    if result is None and downloads.is_given_up(known.starts, task):
        return known, [_given_up(known, task)]
    if result is None or (isinstance(result, messages.Update) and result.blob.digest not in session.held):
        return downloads.begin(known, task, present, now)
    reporting = replace(known, task=task, phase=SessionPhase.REPORTING, result=result)
    # The server is about to offer the task again, with a fresh address for the upload.
    uploads = http_transfers.goes_to_object_store(result, task)
    replies = [] if uploads else results.result_messages(result)
    return replace(reporting, resend_at=now + RESEND_S), replies


def _repeat(session: Session, task: messages.Task, now: float) -> Step:
    """Answer a repeated offer of the task at hand: accept it again, or send its result again."""
    session = replace(session, transfers=http_transfers.with_new_addresses(session.transfers, task))
    if session.transfers.putting is not None:
        return session, [_reply(session, task)]
    if session.result is None:
        switched, fetches = downloads.switch_to_object_store(session)
        unanswered = secure_participation.unanswered_messages(session.masks)
        return switched, [_reply(session, task), *fetches, *unanswered]
    return results.send_result(replace(session, resend_at=now + RESEND_S))


def _given_up(session: Session, task: messages.Task) -> Command:
    why = {"reason": errors.Reason.NO_MEMORY, "detail": downloads.GIVEN_UP}
    return SendMessage(task_reply(session, task, accepted=False, **why))


def _reply(session: Session, task: messages.Task) -> Command:
    return SendMessage(task_reply(session, task, accepted=True, listens=session.listens))


def _decline(session: Session, event: events.Declined) -> list[Command]:
    """Decline a task, unless the genuine task of that attempt is at hand: then this one is a forgery."""
    if session.is_at(event.task.run, event.task.attempt):
        return []
    why = {"reason": event.reason, "detail": event.detail[:500]}
    return [SendMessage(task_reply(session, event.task, accepted=False, **why))]


def _give_back(session: Session, detail: str) -> Step:
    """Decline the task at hand, so that another device can do it; a later offer may be accepted."""
    if session.task is None or session.phase is SessionPhase.REPORTING:
        return session, []
    why = {"reason": errors.Reason.INELIGIBLE, "detail": detail[:500]}
    reply = SendMessage(task_reply(session, session.task, accepted=False, **why))
    dropped, commands = drop_task(session)
    return dropped, [*commands, reply]


def _tick(session: Session, now: float) -> Step:
    if not session.connected:
        return session, []
    ticked, asks = downloads.tick(session, now)
    repeat = secure_aggregation.repeat if session.result is None else results.repeat
    repeated, again = repeat(ticked, now)
    return repeated, [*asks, *again]


def _resume(session: Session, now: float) -> Step:
    """Request missing chunks and repeat the result as soon as the connection is back."""
    resumed, commands = downloads.resume(session, session.receiving, now)
    sent = session.phase is SessionPhase.REPORTING and session.transfers.putting is None
    if sent and session.result is not None:
        commands += results.result_messages(session.result)
    commands += secure_participation.unanswered_messages(session.masks)
    return replace(resumed, resend_at=now + RESEND_S, repeats=0), commands
