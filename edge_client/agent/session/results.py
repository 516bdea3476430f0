"""The result of a task on its way out: told, with its blob where that belongs, until it is answered."""

from __future__ import annotations

from dataclasses import replace

from edge_client.agent.session import secure_aggregation
from edge_client.agent.session.events import Command, Result, SendChunks, SendMessage, Settled, WorkFailed
from edge_client.agent.session.state import RESEND_S, Session, SessionPhase, Step, drop_task, task_reply
from edge_client.transport.object_store import http_transfers
from edge_client.transport.object_store.http_transfers import PutEnded
from schemas.messages import Acknowledgement, BlobRequest, Refusal, TaskReply, Update
from schemas.values import Reason

MOST_REPEATS = 3
"""So often it takes twice as long until a result is told again."""


def work_done(session: Session, result: Result, now: float) -> Step:
    """Tell the result of the task at hand; an update of a masked one waits for its masks."""
    task = session.task
    if task is None or task.masking is None or not isinstance(result, Update):
        return ended(session, result, now)
    if session.phase is not SessionPhase.WORKING or not session.is_at(result.run, result.attempt):
        return session, []
    return secure_aggregation.trained(session, result, now)


def work_failed(session: Session, event: WorkFailed, now: float) -> Step:
    """The task ends in a no."""
    why = {"reason": event.reason, "detail": event.detail[:500]}
    reply = task_reply(session, event.task, accepted=False, **why)
    return work_done(session, reply, now)


def ended(session: Session, result: Result, now: float) -> Step:
    """Tell a result, if it is that of the task at hand."""
    held = session.held | {result.blob.digest} if isinstance(result, Update) else session.held
    if session.phase is not SessionPhase.WORKING or not session.is_at(result.run, result.attempt):
        return replace(session, held=held), []
    result = _with_bytes(session, result)
    done = replace(
        session, held=held, phase=SessionPhase.REPORTING, result=result, resend_at=now + RESEND_S, repeats=0
    )
    return tell(done)


def _with_bytes(session: Session, result: Result) -> Result:
    """The result, with what reached the device beside what it was sent alone, if anything could."""
    if isinstance(result, TaskReply) or session.task is None:
        return result
    heard = session.heard if session.task.channels else None
    fetched = session.fetched or None
    if heard is None and fetched is None:
        return result
    return result.model_copy(update={"heard_bytes": heard, "fetched_bytes": fetched})


def tell(session: Session) -> Step:
    """Tell the result, once its blob is where it belongs."""
    assert session.result is not None
    beside, put = http_transfers.put(session.bypass, session.task, session.result)
    return replace(session, bypass=beside), report(session.result) if put is None else [put]


def report(result: Result) -> list[Command]:
    """Say a result; a small blob goes with it unasked."""
    if isinstance(result, Update) and result.blob.inline:
        return [SendMessage(result), SendChunks(result.blob, 0, 1)]
    return [SendMessage(result)]


def deposited(session: Session, event: PutEnded, now: float) -> Step:
    """The result's blob lies in the store, or has to go by chunks: now it can be told."""
    putting, result = session.bypass.putting, session.result
    if putting is None or putting.ref.digest != event.digest or not isinstance(result, Update):
        return session, []
    beside, again = http_transfers.put_ended(session.bypass, session.task, result, event)
    session = replace(session, bypass=beside, resend_at=now + RESEND_S)
    if again is not None:
        return session, [again]
    told = result.model_copy(update={"deposited": event.done})
    return replace(session, result=told), report(told)


def repeat(session: Session, now: float) -> Step:
    """Say again what was not answered; what is still on its way past the broker was not told yet."""
    told = session.phase is SessionPhase.REPORTING and session.bypass.putting is None
    if not told or session.result is None or now < session.resend_at:
        return session, []
    # Where a thousand wait for their turn, what they repeat must not be what they wait for.
    repeats = min(session.repeats + 1, MOST_REPEATS)
    later = replace(session, resend_at=now + RESEND_S * 2**repeats, repeats=repeats)
    return later, report(session.result)


def limit_chunks(session: Session, chunk_bytes: int) -> Session:
    """The session whose result, if it waits to be fetched, is to be had in chunks of at most that size."""
    result = session.result
    if not isinstance(result, Update) or result.blob.chunk_bytes <= chunk_bytes:
        return session
    blob = result.blob.model_copy(update={"chunk_bytes": chunk_bytes})
    return replace(session, result=result.model_copy(update={"blob": blob}))


def answer_request(session: Session, request: BlobRequest) -> Command:
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
    return SendMessage(refusal)


def answered(session: Session, answer: Acknowledgement | Refusal) -> Step:
    """Settle the pending result; an acknowledged update or delivery is kept, to be shown again if asked."""
    refusal = answer if isinstance(answer, Refusal) else None
    late, result = session.unanswered, session.result
    if late is not None and _is_about(answer, late):
        return replace(session, unanswered=None), [Settled(late, refusal)]
    if secure_aggregation.out_of_the_cohort(session, answer):
        return drop_task(session)
    if result is None or not _is_about(answer, result):
        return session, []
    idle = replace(drop_task(session)[0], unanswered=None)
    if refusal is not None:
        return idle, [Settled(result, refusal)]
    if session.phase is not SessionPhase.REPORTING:
        return session, []
    kept = idle if isinstance(result, TaskReply) else replace(session, phase=SessionPhase.IDLE)
    return kept, [Settled(result)]


def _is_about(answer: Acknowledgement | Refusal, result: Result) -> bool:
    digest = result.blob.digest if isinstance(result, Update) else None
    return (answer.run, answer.attempt, answer.digest) == (result.run, result.attempt, digest)
