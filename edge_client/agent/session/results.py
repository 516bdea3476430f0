"""The result of a task: uploaded, sent, and repeated until the server answers."""

from dataclasses import replace

from edge_client.agent.session import secure_aggregation
from edge_client.agent.session.events import Command, Result, SendChunks, SendMessage, Settled, WorkFailed
from edge_client.agent.session.state import RESEND_S, Session, SessionPhase, Step, drop_task, task_reply
from edge_client.transport.object_store import http_transfers
from schemas.errors import Reason
from schemas.messages import Acknowledgement, BlobRequest, Refusal, TaskReply, Update

MAX_REPEATS = 3  # how many times the interval between two sends of a result doubles


def work_done(session: Session, result: Result, now: float) -> Step:
    """Send the result of the task at hand; the update of a masked task waits for its masks."""
    task = session.task
    if task is None or task.masking is None or not isinstance(result, Update):
        return work_ended(session, result, now)
    if session.phase is not SessionPhase.WORKING or not session.is_at(result.run, result.attempt):
        return session, []
    return secure_aggregation.update_trained(session, result, now)


def work_failed(session: Session, event: WorkFailed, now: float) -> Step:
    reply = task_reply(session, event.task, accepted=False, reason=event.reason, detail=event.detail[:500])
    return work_done(session, reply, now)


def work_ended(session: Session, result: Result, now: float) -> Step:
    """Send a result, if it is that of the task at hand."""
    held = session.held | {result.blob.digest} if isinstance(result, Update) else session.held
    if session.phase is not SessionPhase.WORKING or not session.is_at(result.run, result.attempt):
        return replace(session, held=held), []
    result = _with_bytes(session, result)
    done = replace(session, held=held, phase=SessionPhase.REPORTING, result=result, starts=None)
    return send_result(replace(done, resend_at=now + RESEND_S, repeats=0))


def _with_bytes(session: Session, result: Result) -> Result:
    """The result, with the bytes received over shared topics and the object store, if the task used them."""
    if isinstance(result, TaskReply) or session.task is None:
        return result
    shared = session.shared_bytes if session.task.channels else None
    fetched = session.fetched_bytes or None
    if shared is None and fetched is None:
        return result
    return result.model_copy(update={"heard_bytes": shared, "fetched_bytes": fetched})


def send_result(session: Session) -> Step:
    """Send the result, after uploading its blob to the object store if it has an address there."""
    assert session.result is not None
    transfers, put = http_transfers.put_result(session.transfers, session.task, session.result)
    return replace(session, transfers=transfers), result_messages(session.result) if put is None else [put]


def result_messages(result: Result) -> list[Command]:
    """The messages of a result; a small blob is sent along without a request."""
    if isinstance(result, Update) and result.blob.inline:
        return [SendMessage(result), SendChunks(result.blob, 0, 1)]
    return [SendMessage(result)]


def upload_ended(session: Session, event: http_transfers.PutEnded, now: float) -> Step:
    """The upload has ended: send the result; if the upload failed, the server will request chunks."""
    putting, result = session.transfers.putting, session.result
    if putting is None or putting.ref.digest != event.digest or not isinstance(result, Update):
        return session, []
    transfers, again = http_transfers.on_put_end(session.transfers, session.task, result, event)
    session = replace(session, transfers=transfers, resend_at=now + RESEND_S)
    if again is not None:
        return session, [again]
    uploaded = result.model_copy(update={"deposited": event.done})
    return replace(session, result=uploaded), result_messages(uploaded)


def repeat(session: Session, now: float) -> Step:
    """Repeat an unanswered result; one whose blob is still being uploaded has not been sent yet."""
    sent = session.phase is SessionPhase.REPORTING and session.transfers.putting is None
    if not sent or session.result is None or now < session.resend_at:
        return session, []
    # With a thousand devices waiting, their repeats must not be the load that they wait for.
    repeats = min(session.repeats + 1, MAX_REPEATS)
    later = replace(session, resend_at=now + RESEND_S * 2**repeats, repeats=repeats)
    return later, result_messages(session.result)


def limit_chunks(session: Session, chunk_bytes: int) -> Session:
    """Offer the blob of a waiting result in chunks of at most this many bytes."""
    result = session.result
    if not isinstance(result, Update) or result.blob.chunk_bytes <= chunk_bytes:
        return session
    blob = result.blob.model_copy(update={"chunk_bytes": chunk_bytes})
    return replace(session, result=result.model_copy(update={"blob": blob}))


def answer_request(session: Session, request: BlobRequest) -> Command:
    """Send chunks of the pending result's blob, which is the only one that a device sends."""
    result = session.result
    if isinstance(result, Update) and result.blob.digest == request.digest:
        return SendChunks(result.blob, request.first, request.count)
    to, digest = session.federation, request.digest
    return SendMessage(
        Refusal(federation=to, device=session.device, reason=Reason.UNKNOWN_BLOB, digest=digest)
    )


def result_answered(session: Session, answer: Acknowledgement | Refusal) -> Step:
    """Settle the pending result; an accepted update or delivery is kept in case the server asks again."""
    refusal = answer if isinstance(answer, Refusal) else None
    late, result = session.unanswered, session.result
    if late is not None and _is_about(answer, late):
        return replace(session, unanswered=None), [Settled(late, refusal)]
    if secure_aggregation.is_left_out(session, answer):
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
