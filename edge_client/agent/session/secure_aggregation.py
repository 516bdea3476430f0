"""A masked task among a device's other dealings: its keys, the steps of the agreement, and its end."""

from __future__ import annotations

from dataclasses import replace

from edge_client.agent.session import secure_participation
from edge_client.agent.session.events import SendMessage
from edge_client.agent.session.secure_participation import AggregationMessage
from edge_client.agent.session.state import RESEND_S, Session, SessionPhase, Step, drop_task, task_reply
from schemas.errors import PeerError
from schemas.messages import Acknowledgement, Refusal, Task, Update
from schemas.values import Reason


def entropy_drawn(session: Session, task: Task, entropy: bytes, now: float) -> Step:
    """There is randomness for this task: make keys of it and take part."""
    current = session.task
    if current is None or not session.is_at(task.run, task.attempt):
        return session, []
    return _with_masks(
        session, secure_participation.join(session.masks, session.device, current, entropy), now
    )


def hear(session: Session, message: AggregationMessage, now: float) -> Step:
    """The server goes on with the agreement; raises `PeerError` for what it has no business to say."""
    try:
        return _with_masks(session, secure_participation.hear(session.masks, message), now)
    except PeerError as error:
        if session.task is None or not secure_participation.needs(session.masks, message):
            raise
        return _leave_cohort(session, session.task, error, now)


def trained(session: Session, update: Update, now: float) -> Step:
    """The bare update is there: it waits for its masks."""
    return _with_masks(session, secure_participation.trained(session.masks, update), now)


def repeat(session: Session, now: float) -> Step:
    """Say again what the others have not heard."""
    if now < session.resend_at or not (again := secure_participation.unheard(session.masks)):
        return session, []
    return replace(session, resend_at=now + RESEND_S), again


def _with_masks(session: Session, stepped: secure_participation.Step, now: float) -> Step:
    """Put the next state of the agreement, and what it says, into the session's."""
    masks, commands = stepped
    said = any(isinstance(command, SendMessage) for command in commands)
    resend_at = now + RESEND_S if said else session.resend_at
    return replace(session, masks=masks, resend_at=resend_at), commands


def _leave_cohort(session: Session, task: Task, error: PeerError, now: float) -> Step:
    """The device cannot agree on masks, and nothing better will come: it declines the task."""
    dropped, stop = drop_task(session)
    reply = task_reply(session, task, accepted=False, reason=Reason(error.reason), detail=str(error)[:500])
    declined = replace(
        dropped, task=task, phase=SessionPhase.REPORTING, result=reply, resend_at=now + RESEND_S
    )
    return declined, [*stop, SendMessage(reply)]


def out_of_the_cohort(session: Session, answer: Acknowledgement | Refusal) -> bool:
    """Whether the server goes on without this device's masks, before there is anything else to refuse."""
    task, bare = session.task, isinstance(answer, Refusal) and answer.digest is None
    if task is None or task.masking is None or not bare:
        return False
    return session.result is None and session.is_at(answer.run, answer.attempt)
