"""A masked task in the session: its keys, the steps of the mask agreement, its end."""

from dataclasses import replace

from edge_client.agent.session import events, secure_participation
from edge_client.agent.session.secure_participation import AggregationMessage
from edge_client.agent.session.state import RESEND_S, Session, SessionPhase, Step, drop_task, task_reply
from schemas.errors import PeerError, Reason
from schemas.messages import Acknowledgement, Refusal, Task, TrainTask, Update


def entropy_drawn(session: Session, task: TrainTask, entropy: bytes, now: float) -> Step:
    current = session.task
    if not isinstance(current, TrainTask) or not session.is_at(task.run, task.attempt):
        return session, []
    joined = secure_participation.join(session.masks, session.device, current, entropy)
    return _with_masks(session, joined, now)


def receive(session: Session, message: AggregationMessage, now: float) -> Step:
    """Take the server's next step of the agreement; raises `PeerError` for one that breaks the protocol."""
    try:
        return _with_masks(session, secure_participation.receive(session.masks, message), now)
    except PeerError as error:
        if session.task is None or not secure_participation.is_waiting_for(session.masks, message):
            raise
        return _leave_cohort(session, session.task, error, now)


def update_trained(session: Session, update: Update, now: float) -> Step:
    """Keep the unmasked update until masks are agreed."""
    trained = replace(session.masks, trained=update)
    return _with_masks(session, secure_participation.mask_when_agreed(trained), now)


def repeat(session: Session, now: float) -> Step:
    """Repeat messages of the agreement that were not answered."""
    if now < session.resend_at or not (again := secure_participation.unanswered_messages(session.masks)):
        return session, []
    return replace(session, resend_at=now + RESEND_S), again


def _with_masks(session: Session, stepped: secure_participation.Step, now: float) -> Step:
    """Put the next state of the agreement into the session, and its commands with the session's."""
    masks, commands = stepped
    sends = any(isinstance(command, events.SendMessage) for command in commands)
    resend_at = now + RESEND_S if sends else session.resend_at
    return replace(session, masks=masks, resend_at=resend_at), commands


def _leave_cohort(session: Session, task: Task, error: PeerError, now: float) -> Step:
    """Decline the task: the device cannot agree on masks, and repeats would not help."""
    dropped, stop = drop_task(session)
    reply = task_reply(session, task, accepted=False, reason=Reason(error.reason), detail=str(error)[:500])
    declined = replace(dropped, task=task, phase=SessionPhase.REPORTING, result=reply)
    return replace(declined, resend_at=now + RESEND_S), [*stop, events.SendMessage(reply)]


def is_left_out(session: Session, answer: Acknowledgement | Refusal) -> bool:
    """Whether a refusal says that the cohort goes on without this device, which has no result yet."""
    task, is_general = session.task, isinstance(answer, Refusal) and answer.digest is None
    if task is None or task.masking is None or not is_general:
        return False
    return session.result is None and session.is_at(answer.run, answer.attempt)
