"""The server's side of its dealings with each device: what a message of one does to the run.

Whatever was said before may be said again: repeats change nothing and are answered as the first time.
"""

from __future__ import annotations

from dataclasses import replace

from edge_server import participant as part
from edge_server.federation import IN_ROUND, Federation, Phase, Step, time_left, with_participant
from edge_server.participant import Participant, Status
from edge_server.round_events import Command, Deliver, Send, SendChunks, UpdateChecked
from schemas.messages import (
    Acknowledgement,
    Birth,
    BlobRequest,
    Death,
    Delivery,
    FromDevice,
    Refusal,
    TaskReply,
    Telemetry,
    Update,
)
from schemas.values import Reason


def receive(federation: Federation, message: FromDevice, now: float) -> Step:
    """Take a message of a device."""
    match message:
        case Birth():
            return _born(federation, message, now)
        case Death():
            return replace(federation, fleet=federation.fleet.died(message, now)), []
        case TaskReply():
            return _replied(federation, message, now)
        case Update():
            return _claimed(federation, message)
        case Delivery():
            return _delivered(federation, message)
        case BlobRequest():
            return federation, [_answer_request(federation, message)]
        case Refusal():
            return _upload_lost(federation, message, now)
        case Telemetry():
            return federation, []


def _born(federation: Federation, birth: Birth, now: float) -> Step:
    known = federation.fleet.devices.get(birth.device)
    born = replace(federation, fleet=federation.fleet.born(birth))
    participant = federation.participants.get(birth.device)
    again = known is None or birth.session > known.session or not known.alive
    if participant is None or not again or federation.phase not in IN_ROUND:
        return born, []
    return with_participant(born, part.rejoined(participant, now, time_left=time_left(born, now)))


def _participant(federation: Federation, answer: TaskReply | Delivery) -> Participant | None:
    """The one who answers, if it is the task at hand that is answered."""
    current = federation.phase in IN_ROUND and _is_current(federation, answer)
    return federation.participants.get(answer.device) if current else None


def _is_current(federation: Federation, answer: TaskReply | Update | Delivery) -> bool:
    said = (answer.run, answer.attempt, answer.round)
    return said == (federation.run, federation.attempt, federation.round)


def _replied(federation: Federation, reply: TaskReply, now: float) -> Step:
    answers = [] if reply.accepted else [_acknowledge(reply)]
    participant = _participant(federation, reply)
    if participant is None:
        return federation, answers
    replied = part.replied(
        participant, now, accepted=reply.accepted, reason=reply.reason, detail=reply.detail
    )
    return with_participant(federation, (replied[0], [*answers, *replied[1]]))


def _claimed(federation: Federation, update: Update) -> Step:
    """An update is announced: fetch it, or say at once what becomes of it."""
    last = federation.counted.get(update.device)
    if last is not None and (last.run, last.attempt) == (update.run, update.attempt):
        if last.blob.digest == update.blob.digest:
            return federation, [_acknowledge(update)]
        return federation, _refuse(update, Reason.ALREADY_COUNTED, "another update counts in this round")
    if not _is_current(federation, update) or federation.phase is not Phase.TRAINING:
        return federation, _refuse(update, Reason.STALE_ROUND, f"round {federation.round} is under way")
    participant = federation.participants.get(update.device)
    if participant is None:
        return federation, _refuse(update, Reason.NOT_SELECTED, "not selected in this round")
    if participant.final:
        return federation, _refuse(update, participant.reason or Reason.STALE_ROUND, participant.status)
    claimed, commands = part.claims(participant, update)
    if claimed.status is Status.REFUSED and claimed.reason is not None:
        commands += _refuse(update, claimed.reason, "")
    return with_participant(federation, (claimed, commands))


def checked(federation: Federation, event: UpdateChecked) -> Step:
    """Take the firewall's verdict: count the update and confirm it, or refuse it."""
    participant = federation.participants.get(event.device)
    if participant is None or participant.update is None or participant.status is not Status.CHECKING:
        return federation, []
    update = participant.update
    if update.blob.digest != event.digest:
        return federation, []
    if event.reason is not None:
        refused, notes = part.refuse(participant, event.reason, event.detail)
        return with_participant(federation, (refused, [*notes, *_refuse(update, event.reason, event.detail)]))
    counted = replace(federation, counted={**federation.counted, event.device: update})
    done = replace(participant, status=Status.COUNTED, receiving=None)
    return with_participant(counted, (done, [_acknowledge(update)]))


def _delivered(federation: Federation, delivery: Delivery) -> Step:
    answer = _acknowledge(delivery)
    participant = _participant(federation, delivery)
    if participant is None or participant.final or federation.phase is not Phase.DELIVERING:
        return federation, [answer]
    return with_participant(
        federation, (replace(participant, status=Status.COUNTED), [answer, Deliver(delivery)])
    )


def _upload_lost(federation: Federation, refusal: Refusal, now: float) -> Step:
    """The device no longer has what it announced (it was restarted): offer the task again."""
    participant = federation.participants.get(refusal.device)
    if participant is None or participant.status is not Status.UPLOADING:
        return federation, []
    if participant.update is None or refusal.digest != participant.update.blob.digest:
        return federation, []
    lost = replace(participant, status=Status.OFFERED, update=None, receiving=None)
    return with_participant(federation, part.offer(lost, now, time_left=time_left(federation, now)))


def _answer_request(federation: Federation, request: BlobRequest) -> Command:
    participant = federation.participants.get(request.device)
    if participant is not None:
        for ref in participant.assignment.task.blobs.values():
            if ref.digest == request.digest:
                return SendChunks(request.device, ref, request.first, request.count)
    return Send(
        request.device,
        Refusal(
            federation=federation.name,
            device=request.device,
            reason=Reason.UNKNOWN_BLOB,
            digest=request.digest,
        ),
    )


def _acknowledge(result: Update | Delivery | TaskReply) -> Command:
    acknowledgement = Acknowledgement(
        federation=result.federation,
        device=result.device,
        run=result.run,
        attempt=result.attempt,
        digest=result.blob.digest if isinstance(result, Update) else None,
    )
    return Send(result.device, acknowledgement)


def _refuse(update: Update, reason: Reason, detail: str) -> list[Command]:
    refusal = Refusal(
        federation=update.federation,
        device=update.device,
        run=update.run,
        attempt=update.attempt,
        digest=update.blob.digest,
        reason=reason,
        detail=detail[:500],
    )
    return [Send(update.device, refusal)]
