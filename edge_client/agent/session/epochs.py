"""Servers that were replaced: what they still say in an old epoch is refused."""

from dataclasses import replace

from edge_client.agent.session.state import Session
from schemas.errors import PeerError
from schemas.messages import AnyMessage
from schemas.messages.message import ServedMessage
from schemas.values import Reason


def check_epoch(session: Session, message: AnyMessage) -> None:
    """Raise `PeerError` for a message about a run of which a newer epoch is known."""
    run, epoch = _epoch_of(message)
    known = session.epochs.get(run, 0)
    if epoch < known:
        said = f"'{message.kind}' of run {run} by a server that was replaced"
        detail = f"{said}: its epoch is {epoch or 'the first'}, the newest is {known}"
        raise PeerError(detail, reason=Reason.SUPERSEDED)


def note_epoch(session: Session, message: AnyMessage) -> Session:
    """Remember the epoch of a message that was accepted.

    One that names no run says nothing of the epoch of those that name none either.
    """
    run, epoch = _epoch_of(message)
    if not run or epoch <= session.epochs.get(run, 0):
        return session
    return replace(session, epochs={**session.epochs, run: epoch})


def _epoch_of(message: AnyMessage) -> tuple[str, int]:
    """A message's run, empty if it names none, and its epoch, 0 in the first one."""
    if not isinstance(message, ServedMessage):
        return "", 0
    return getattr(message, "run", None) or "", message.epoch or 0
