"""The server's side of its dealings with each device: what a message of one does to the run.

Whatever was said before may be said again: repeats change nothing and are answered as the first time.
"""

from __future__ import annotations

from dataclasses import replace

from edge_server import broadcasting
from edge_server import participant as part
from edge_server.federation import Federation, Phase, Step, with_participant
from edge_server.fleet import Device
from edge_server.participant import Participant, Status
from edge_server.quarantine import quarantine_end, strike, told
from edge_server.round_events import (
    Command,
    Deliver,
    NotDeposited,
    Note,
    Send,
    SendChunks,
    Strike,
    UpdateChecked,
)
from edge_server.secure import masked
from schemas.blobs import Chunk
from schemas.manifest import Manifest
from schemas.messages import (
    Acknowledgement,
    Birth,
    BlobRequest,
    Death,
    Delivery,
    FromDevice,
    Heard,
    KeyAdvertisement,
    KeyShares,
    Refusal,
    Task,
    TaskReply,
    Telemetry,
    UnmaskAnswer,
    Update,
)
from schemas.values import Eligibility, Reason


def receive(federation: Federation, message: FromDevice, now: float, *, have: int = 0) -> Step:
    """Take a message of a device; `have` are the chunks of an update that are here already."""
    match message:
        case Birth():
            return _born(federation, message, now)
        case Death():
            return replace(federation, fleet=federation.fleet.died(message, now)), []
        case TaskReply():
            return _replied(federation, message, now)
        case Update():
            return _claimed(federation, message, have)
        case Delivery():
            return _delivered(federation, message)
        case BlobRequest():
            return federation, [_answer_request(federation, message)]
        case Heard():
            return broadcasting.heard(federation, message, now)
        case Refusal():
            return _upload_lost(federation, message, now)
        case Telemetry():
            return federation, []
        case KeyAdvertisement() | KeyShares() | UnmaskAnswer():
            return masked.take(federation, message)


def _born(federation: Federation, birth: Birth, now: float) -> Step:
    if not federation.fleet.has_room_for(birth.device):
        return federation, [_no_room(birth, federation.fleet.most)]
    known = federation.fleet.devices.get(birth.device)
    born = replace(federation, fleet=federation.fleet.born(birth))
    notes = _standing(known, born.fleet.devices[birth.device])
    participant = federation.participants.get(birth.device)
    again = known is None or birth.session > known.session or not known.alive
    if participant is None or not again:
        return born, notes
    rejoined, commands = with_participant(born, part.rejoined(participant, now))
    return rejoined, [*notes, *commands]


def _standing(known: Device | None, device: Device) -> list[Command]:
    """A word on whether the device's owner lets it train, where that is another than before."""
    before = Eligibility.TRAIN if known is None else known.eligibility
    if device.eligibility is before:
        return []
    return [Note(f"is now to {device.eligibility}", device.name, detail=device.ineligible_because)]


def _no_room(birth: Birth, most: int) -> Command:
    detail = f"{most} devices are known, and no more are taken"
    refusal = Refusal(
        federation=birth.federation, device=birth.device, reason=Reason.NOT_SELECTED, detail=detail
    )
    return Send(birth.device, refusal)


def _participant(federation: Federation, answer: TaskReply | Update | Delivery) -> Participant | None:
    """The one who answers, if it is its own task that is answered."""
    participant = federation.participants.get(answer.device)
    return participant if participant is not None and participant.is_meant(answer) else None


def _replied(federation: Federation, reply: TaskReply, now: float) -> Step:
    answers = [] if reply.accepted else [_acknowledge(reply)]
    participant = _participant(federation, reply)
    if participant is None:
        return federation, answers
    replied = part.replied(
        participant, now, accepted=reply.accepted, reason=reply.reason, detail=reply.detail
    )
    short: list[Command] = []
    if reply.reason is Reason.NO_MEMORY and replied[1]:
        # It counts against nobody, but is kept: the next task shall be a smaller one.
        short = [Strike(reply.device, federation.round, Reason.NO_MEMORY)]
    federation, ends = broadcasting.answered(federation, reply, participant, now)
    return with_participant(federation, (replied[0], [*answers, *replied[1], *short, *ends]))


def _claimed(federation: Federation, update: Update, have: int) -> Step:
    """An update is announced: fetch it, or say at once what becomes of it."""
    last = federation.counted.get(update.device)
    if last is not None and (last.run, last.attempt) == (update.run, update.attempt):
        if last.blob.digest == update.blob.digest:
            return federation, [_acknowledge(update)]
        return federation, _turned_away(update, Reason.ALREADY_COUNTED, "another update counts in this round")
    participant = _participant(federation, update)
    if participant is None:
        return federation, _turn_away(federation, update)
    if participant.final:
        return federation, [_refusal(update, participant.reason or Reason.STALE_ROUND, participant.status)]
    claimed, commands = part.claims(participant, update, have=have)
    if claimed.status is Status.REFUSED and claimed.reason is not None:
        struck, more = strike(federation, update.device, claimed.reason)
        return with_participant(struck, (claimed, [*commands, _refusal(update, claimed.reason, ""), *more]))
    return with_participant(federation, (claimed, commands))


def _turn_away(federation: Federation, update: Update) -> list[Command]:
    """Refuse an update that nobody has asked its device for, or no longer."""
    said = (update.run, update.attempt, update.round)
    current = said == (federation.run, federation.attempt, federation.round)
    if current and federation.phase is Phase.TRAINING and update.device not in federation.participants:
        refused = _turned_away(update, Reason.NOT_SELECTED, "not selected in this round")
        out = quarantine_end(federation, update.device) is not None
        return [*refused, told(federation, update.device)] if out else refused
    return _turned_away(update, Reason.STALE_ROUND, f"round {federation.round} is under way")


def _turned_away(update: Update, reason: Reason, detail: str) -> list[Command]:
    """Count the refusal of an update that has not even been looked at, and tell its device."""
    return [Note("update refused", update.device, reason, detail), _refusal(update, reason, detail)]


def chunk_came(federation: Federation, device: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of an update.

    None begins an upload during a planning: what is not known to be in use by then is thrown away.
    """
    participant = federation.participants.get(device)
    if participant is None:
        return federation, []
    if federation.phase is Phase.PLANNING and participant.status is Status.WAITING:
        return federation, []
    return with_participant(federation, part.arrived(participant, chunk, now))


def stored(federation: Federation, device: str) -> Step:
    """Take the word that a claimed update need not be fetched."""
    participant = federation.participants.get(device)
    return (federation, []) if participant is None else with_participant(federation, part.stored(participant))


def not_deposited(federation: Federation, event: NotDeposited) -> Step:
    """Take the word that a claimed update is not in the store where its device has put it."""
    participant = federation.participants.get(event.device)
    if participant is None or participant.update is None or participant.update.blob.digest != event.digest:
        return federation, []
    return with_participant(federation, part.not_deposited(participant, event.have))


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
        struck, more = strike(federation, event.device, event.reason)
        answers = [*notes, _refusal(update, event.reason, event.detail), *more]
        return with_participant(struck, (refused, answers))
    counted = replace(federation, counted={**federation.counted, event.device: update})
    done = replace(participant, status=Status.COUNTED, receiving=None)
    return with_participant(counted, (done, [_acknowledge(update)]))


def _delivered(federation: Federation, delivery: Delivery) -> Step:
    participant = _participant(federation, delivery)
    if participant is None:
        return federation, [_acknowledge(delivery)]
    vouched = _vouched(participant.assignment.task, delivery)
    answer = _acknowledge(delivery, vouched)
    if participant.final:
        return federation, [answer]
    done = replace(participant, status=Status.COUNTED)
    return with_participant(federation, (done, [Deliver(delivery), answer]))


def _vouched(task: Task, delivery: Delivery) -> Manifest | None:
    """What a signature for a delivered model is over: the device's word, on a task that was signed for it."""
    if task.manifest is None:
        return None
    given = task.manifest.manifest
    return given.model_copy(update={"what": "device-export", "sha256": delivery.metrics.onnx_sha256})


def _upload_lost(federation: Federation, refusal: Refusal, now: float) -> Step:
    """The device no longer has what it announced (it was restarted): offer the task again."""
    participant = federation.participants.get(refusal.device)
    if participant is None or participant.status is not Status.UPLOADING:
        return federation, []
    if participant.update is None or refusal.digest != participant.update.blob.digest:
        return federation, []
    lost = replace(participant, status=Status.OFFERED, update=None, receiving=None)
    return with_participant(federation, part.offer(lost, now))


def _answer_request(federation: Federation, request: BlobRequest) -> Command:
    participant = federation.participants.get(request.device)
    if participant is not None and not participant.final:
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


def _acknowledge(result: Update | Delivery | TaskReply, vouched: Manifest | None = None) -> Command:
    acknowledgement = Acknowledgement(
        federation=result.federation,
        device=result.device,
        run=result.run,
        attempt=result.attempt,
        digest=result.blob.digest if isinstance(result, Update) else None,
    )
    return Send(result.device, acknowledgement, vouched)


def _refusal(update: Update, reason: Reason, detail: str) -> Command:
    refusal = Refusal(
        federation=update.federation,
        device=update.device,
        run=update.run,
        attempt=update.attempt,
        digest=update.blob.digest,
        reason=reason,
        detail=detail[:500],
    )
    return Send(update.device, refusal)
