"""What a message of a device does to a run.

Devices may repeat any message: repeats change nothing and get the same answer as the first time.
"""

from dataclasses import replace

from edge_client.data.tasks.words import leading
from edge_client.security.identity.validity import format_utc
from edge_server.rounds import admission, events, planning, quarantine, secure_aggregation
from edge_server.rounds import participant as part
from edge_server.rounds.broadcast import handlers
from edge_server.rounds.event_entry import EventKind
from edge_server.rounds.fleet import Device
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.state import Federation, Phase, Step, with_participant
from schemas import messages, values
from schemas.base import fields_of
from schemas.errors import Reason, format_count
from schemas.security.manifest import Manifest
from schemas.tensors.chunks import NO_CHUNKS, Chunk, ChunkSet


def receive(
    federation: Federation,
    message: messages.FromDevice,
    now: float,
    *,
    have: ChunkSet = NO_CHUNKS,
    accepted: bool = False,
    retained: bool = False,
) -> Step:
    """Handle a device's message; the other arguments are those of `MessageReceived`."""
    if not isinstance(message, messages.Birth | messages.Death):
        federation = replace(federation, fleet=federation.fleet.with_contact(message.device))
    match message:
        case messages.Birth() if federation.sites.is_gone(federation.sites.of(message.device)):
            return replace(federation, sites=federation.sites.keep_waiting(message)), []
        case messages.Birth() if federation.fleet.is_newcomer(message.device):
            return admission.question_newcomer(federation, message, now)
        case messages.Birth():
            return _born(federation, message, now, retained=retained)
        case messages.Death():
            return _on_death(federation, message, now)
        case messages.TaskReply():
            return _on_reply(federation, message, now)
        case messages.Update():
            return _on_claim(federation, message, now, have, accepted=accepted)
        case messages.Delivery():
            return _on_delivery(federation, message)
        case messages.BlobRequest():
            return federation, [_answer_request(federation, message)]
        case messages.BroadcastProgress():
            return handlers.handle_progress(federation, message, now)
        case messages.Refusal() if (birth := admission.answered_birth(federation, message)) is not None:
            return _born(admission.admit(federation, birth), birth, now)
        case messages.Refusal():
            return _upload_lost(federation, message, now)
        case messages.Telemetry(device=device) if admission.misses_birth(federation, device):
            # An idle device sends nothing else, and believes that the server knows it.
            return federation, [admission.ask_for_birth(federation, device)]
        case messages.Telemetry():
            return federation, []
        case messages.KeyAdvertisement() | messages.KeyShares() | messages.UnmaskAnswer():
            return secure_aggregation.on_message(federation, message)


def _born(federation: Federation, birth: messages.Birth, now: float, *, retained: bool = False) -> Step:
    if not federation.fleet.has_room_for(birth.device):
        detail = f"{federation.fleet.most} devices are known, and no more are taken"
        return federation, [events.send_refusal(birth.federation, birth.device, Reason.NOT_SELECTED, detail)]
    known = federation.fleet.devices.get(birth.device)
    federation, twins = admission.check_name(federation, birth, known)
    fleet = federation.fleet.born(birth)
    hearsay = known is None or not known.alive or known.doubted or birth.session > known.session
    if retained and hearsay and fleet is not federation.fleet:
        fleet = fleet.doubt(birth.device, now)
    born = replace(federation, fleet=fleet)
    notes = [
        *twins,
        *_note_joining(known, birth),
        *_note_renewal(known, birth),
        *_eligibility_note(known, born.fleet.devices[birth.device]),
        *_broken_files(known, birth),
    ]
    born, misfits = planning.check_data(born, birth.device, before=known)
    notes += misfits
    participant = federation.participants.get(birth.device)
    again = known is None or birth.session > known.session or not known.alive
    if participant is None or not again:
        return born, notes
    rejoined, commands = with_participant(born, part.rejoin(participant, now))
    return rejoined, [*notes, *commands]


def _note_joining(known: Device | None, birth: messages.Birth) -> list[events.Command]:
    """A note on a device that is new, or was lost."""
    if known is not None and (known.alive or birth.session < known.session):
        return []
    what = "joined" if known is None else "is back"
    detail = f"{birth.profile.machine or 'board unknown'}, {format_count(birth.data.examples, 'example')}"
    return [events.Note(what, birth.device, detail=detail, kind=EventKind.JOIN, routine=True)]


def _note_renewal(known: Device | None, birth: messages.Birth) -> list[events.Command]:
    """A note on a certificate that expires later than the device's last one."""
    before = None if known is None else known.certificate_until
    if before is None or birth.certificate_until is None or birth.certificate_until <= before:
        return []
    what, detail = "certificate renewed", f"valid to {format_utc(birth.certificate_until)}"
    return [events.Note(what, birth.device, detail=detail, kind=EventKind.RENEWAL, routine=True)]


def _on_death(federation: Federation, death: messages.Death, now: float) -> Step:
    fleet = federation.fleet.with_death(death, now)
    lost = fleet is not federation.fleet and death.device in fleet.devices
    notes = [events.Note("lost", death.device, kind=EventKind.LOSS, routine=True)] if lost else []
    return replace(federation, fleet=fleet), [*notes]


def _eligibility_note(known: Device | None, device: Device) -> list[events.Command]:
    """A note if the owner's rules now allow something else than before."""
    before = values.Eligibility.TRAIN if known is None else known.eligibility
    if device.eligibility is before:
        return []
    return [events.Note(f"is now to {device.eligibility}", device.name, detail=device.ineligible_because)]


def _broken_files(known: Device | None, birth: messages.Birth) -> list[events.Command]:
    """A note on files that a device leaves out, unless it has left out the same before."""
    skipped = birth.data.skipped
    if skipped is None or (known and (birth.session < known.session or known.data.skipped == skipped)):
        return []
    return [events.Note("has broken files:", birth.device, detail=skipped.in_words())]


def _participant(
    federation: Federation, answer: messages.TaskReply | messages.Update | messages.Delivery
) -> Participant | None:
    """The participant that answers, if the answer is to its current task."""
    participant = federation.participants.get(answer.device)
    return participant if participant is not None and participant.is_meant(answer) else None


def _on_reply(federation: Federation, reply: messages.TaskReply, now: float) -> Step:
    answers = [] if reply.accepted else [_acknowledge(reply)]
    participant = _participant(federation, reply)
    if participant is None:
        return federation, answers
    replied = part.record_reply(
        participant, now, accepted=reply.accepted, reason=reply.reason, detail=reply.detail
    )
    short: list[events.Command] = []
    if reply.reason is Reason.NO_MEMORY and replied[1]:
        # No strike against the device, but recorded: its next task must be smaller.
        short = [events.RecordStrike(reply.device, federation.round, Reason.NO_MEMORY)]
    federation = _mark_unknown_names(federation, reply)
    federation, ends = handlers.handle_reply(federation, reply, participant, now)
    return with_participant(federation, (replied[0], [*answers, *replied[1], *short, *ends]))


def _mark_unknown_names(federation: Federation, reply: messages.TaskReply) -> Federation:
    """A device whose names did not fit into its birth finds out from its task that they are unknown."""
    card = federation.fleet.devices[reply.device].data if reply.device in federation.fleet.devices else None
    if reply.reason is not Reason.INCOMPATIBLE or card is None:
        return federation
    if (card.named and not card.class_names) or (card.columns and not card.states_columns):
        return planning.mark_misfit(federation, reply.device, reply.detail or str(reply.reason))
    return federation


def _on_claim(
    federation: Federation, update: messages.Update, now: float, have: ChunkSet, *, accepted: bool
) -> Step:
    """An update is announced: fetch it, or answer at once why not."""
    last = federation.counted.get(update.device)
    if last is not None and (last.run, last.attempt) == (update.run, update.attempt):
        if last.blob.digest == update.blob.digest:
            return federation, [_acknowledge(update)]
        return federation, _turned_away(update, Reason.ALREADY_COUNTED, "another update counts in this round")
    if _may_be_accepted(federation, update):
        return federation, []
    participant = _participant(federation, update)
    if participant is None:
        return federation, [_acknowledge(update)] if accepted else _turn_away(federation, update)
    if participant.final:
        return federation, [_refusal(update, participant.reason or Reason.STALE_ROUND, participant.status)]
    claimed, commands = part.record_claim(participant, update, now, have=have)
    if claimed.status is Status.REFUSED and claimed.reason is not None:
        struck, more = quarantine.strike(federation, update.device, claimed.reason)
        return with_participant(struck, (claimed, [*commands, _refusal(update, claimed.reason, ""), *more]))
    return with_participant(federation, (claimed, commands))


def _may_be_accepted(federation: Federation, update: messages.Update) -> bool:
    """Whether the journal may have the update as accepted until the round, which did not wait, is closed."""
    late = federation.late.get(update.device) if federation.phase is Phase.CLOSING else None
    return late is not None and (late.attempt, late.blob) == (update.attempt, update.blob)


def _turn_away(federation: Federation, update: messages.Update) -> list[events.Command]:
    stated = (update.run, update.attempt, update.round)
    current = stated == (federation.run, federation.attempt, federation.round)
    if current and federation.phase is Phase.TRAINING and update.device not in federation.participants:
        refused = _turned_away(update, Reason.NOT_SELECTED, "not selected in this round")
        out = quarantine.quarantine_end(federation, update.device) is not None
        return [*refused, quarantine.quarantine_refusal(federation, update.device)] if out else refused
    return _turned_away(update, Reason.STALE_ROUND, f"round {federation.round} is under way")


def _turned_away(update: messages.Update, reason: Reason, detail: str) -> list[events.Command]:
    """Refuse an update without examining it: count the refusal and inform the device."""
    return [events.Note("update refused", update.device, reason, detail), _refusal(update, reason, detail)]


def receive_chunk(federation: Federation, device: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of an update; no upload begins during a planning, which deletes unused blobs."""
    participant = federation.participants.get(device)
    if participant is None:
        return federation, []
    if federation.phase is Phase.PLANNING and participant.status is Status.WAITING:
        return federation, []
    return with_participant(federation, part.receive_chunk(participant, chunk, now))


def skip_upload(federation: Federation, device: str) -> Step:
    participant = federation.participants.get(device)
    if participant is None:
        return federation, []
    return with_participant(federation, part.skip_upload(participant))


def fall_back_to_chunks(federation: Federation, event: events.NotInObjectStore) -> Step:
    """A claimed update could not be fetched from the object store: request its chunks."""
    participant = federation.participants.get(event.device)
    if participant is None or participant.update is None or participant.update.blob.digest != event.digest:
        return federation, []
    return with_participant(federation, part.fall_back_to_chunks(participant, event.have))


def record_verdict(federation: Federation, event: events.UpdateChecked) -> Step:
    participant = federation.participants.get(event.device)
    if participant is None or participant.update is None or participant.status is not Status.CHECKING:
        return federation, []
    update = participant.update
    if update.blob.digest != event.digest:
        return federation, []
    if event.reason is not None:
        refused, notes = part.refuse(participant, event.reason, event.detail)
        struck, more = quarantine.strike(federation, event.device, event.reason)
        answers = [*notes, _refusal(update, event.reason, event.detail), *more]
        return with_participant(struck, (refused, answers))
    counted = replace(federation, counted={**federation.counted, event.device: update})
    done = replace(participant, status=Status.COUNTED, receiving=None)
    return with_participant(counted, (done, [_acknowledge(update)]))


def _on_delivery(federation: Federation, delivery: messages.Delivery) -> Step:
    participant = _participant(federation, delivery)
    if participant is None:
        return federation, [_acknowledge(delivery)]
    answer = _acknowledge(delivery, _manifest_to_sign(participant.assignment.task, delivery))
    if participant.status is Status.COUNTED:
        return federation, [answer]
    # Also of a device that was given up: it has the model.
    done = replace(participant, status=Status.COUNTED)
    return with_participant(
        federation, (done, [events.RecordDelivery(delivery), _in_place(delivery), answer])
    )


def _in_place(delivery: messages.Delivery) -> events.Command:
    """A note on a delivered model: whether the device serves it or keeps its earlier one."""
    metrics, verdict = delivery.metrics, delivery.metrics.verdict
    if verdict is not None and not verdict.served:
        detail = f"{verdict.earlier}: {verdict.why}"
        return events.Note("earlier model kept", delivery.device, detail=detail, kind=EventKind.DELIVERY)
    result = leading(metrics.metrics)
    accuracy = "" if result is None else f", {result[0].name} {result[0].text(result[1])}"
    because = "" if verdict is None else f"; {verdict.why}"
    detail = f"{metrics.variant}, {metrics.onnx_bytes} bytes{accuracy}{because}"
    return events.Note(
        "model delivered", delivery.device, detail=detail, kind=EventKind.DELIVERY, routine=True
    )


def _manifest_to_sign(task: messages.Task, delivery: messages.Delivery) -> Manifest | None:
    """The manifest to sign for a delivered model: the digest that the device reports, for its signed task."""
    if task.manifest is None:
        return None
    given = task.manifest.manifest
    return given.model_copy(update={"what": "device-export", "sha256": delivery.metrics.onnx_sha256})


def _upload_lost(federation: Federation, refusal: messages.Refusal, now: float) -> Step:
    """A device refuses a request: its update is gone (offer the task again), or its blob is damaged."""
    participant = federation.participants.get(refusal.device)
    if refusal.reason is Reason.DIGEST_MISMATCH and participant is not None and not participant.final:
        named = {ref.digest for ref in participant.assignment.task.blobs.values()}
        return federation, [events.RepairBlob(refusal.digest)] if refusal.digest in named else []
    if participant is None or participant.status is not Status.UPLOADING:
        return federation, []
    sent = None if participant.update is None else participant.update.sent_blob
    if sent is None or refusal.digest != sent.digest:
        return federation, []
    lost = replace(participant, status=Status.OFFERED, update=None, receiving=None)
    return with_participant(federation, part.offer(lost, now))


def drop_lost_blobs(federation: Federation, digests: frozenset[str]) -> Federation:
    """Devices that need a lost blob have missed the round; those whose update is lost must send it again."""
    counted = dict(federation.counted)
    changed = []
    for part_of in federation.participants.values():
        update, blobs = part_of.update, part_of.assignment.task.blobs.values()
        sent = None if update is None else update.sent_blob
        if part_of.status is Status.COUNTED and sent is not None and sent.digest in digests:
            counted.pop(part_of.device, None)
            changed.append(replace(part_of, status=Status.OFFERED, update=None, offer_at=0.0))
        elif not part_of.final and any(ref.digest in digests for ref in blobs):
            changed.append(part.mark_missed(part_of))
    return replace(federation, participants=federation.participants.with_all(changed), counted=counted)


def _answer_request(federation: Federation, request: messages.BlobRequest) -> events.Command:
    participant = federation.participants.get(request.device)
    if participant is not None and not participant.final:
        for ref in participant.assignment.task.blobs.values():
            if ref.digest == request.digest:
                return events.SendChunks(request.device, ref, request.first, request.count)
    if admission.misses_birth(federation, request.device):
        return admission.ask_for_birth(federation, request.device)
    return events.send_refusal(federation.name, request.device, Reason.UNKNOWN_BLOB, digest=request.digest)


def _acknowledge(
    result: messages.Update | messages.Delivery | messages.TaskReply, to_sign: Manifest | None = None
) -> events.Command:
    digest = result.blob.digest if isinstance(result, messages.Update) else None
    about = fields_of(result, "federation", "device", "run", "attempt")
    acknowledgement = messages.Acknowledgement(**about, digest=digest)
    return events.Send(result.device, acknowledgement, to_sign)


def _refusal(update: messages.Update, reason: Reason, detail: str) -> events.Command:
    named = {"run": update.run, "attempt": update.attempt, "digest": update.blob.digest}
    return events.send_refusal(update.federation, update.device, reason, detail, **named)
