"""Updates on their way up: they end at the gateway, and only their receipts go on.

Updates that the gateway cannot examine pass unchanged, chunk by chunk: masked ones and statistics, which are
small or look like noise, and those of tasks that it does not know.
"""

import math
from dataclasses import replace

from edge_server.rounds import participant as part
from edge_server.rounds.events import Assignment, CheckUpdate, Note, Send, WriteUpdateChunk
from edge_server.rounds.events import Command as RoundCommand
from edge_server.rounds.gateway import events
from edge_server.rounds.gateway.state import Gateway, Step, with_upload, without_upload
from edge_server.rounds.participant import Participant, Status
from schemas.messages import Acknowledgement, BlobRequest, Refusal, SiteReceipt, TrainTask, Update
from schemas.tensors.chunks import Chunk

UPLOADING_BYTES = 48 * 1024 * 1024
"""Bytes of uploads in flight, below the 64 MB that Mosquitto queues for one client."""


def on_claim(gateway: Gateway, update: Update, event: events.DeviceSpoke, now: float) -> Step:
    """A device has an update: fetch it; if it was examined already, repeat its receipt."""
    known = gateway.updates.get(update.device)
    if known is not None and _same(known, update):
        pending = gateway.pending | {update.device}
        return replace(gateway, pending=pending), _receipt(known)
    if known is not None and (known.run, known.attempt) == (update.run, update.attempt):
        # Another update of the same task: what is above may count the first, and judges that first.
        waits = update.device in gateway.pending
        return gateway, _receipt(known) if waits else [events.SendAbove(update, update.device)]
    task = gateway.tasks.get(update.device)
    if gateway.below(update.device) or not _examines(gateway, task, update):
        return gateway, [events.SendAbove(update, update.device)]
    assert isinstance(task, TrainTask)
    if gateway.terms is None:
        return gateway, []  # the device repeats its claim
    fresh = Participant(
        update.device, Assignment(task, event.most_bytes), deadline=math.inf, status=Status.ACCEPTED
    )
    upload = gateway.uploads.get(update.device, fresh)
    taken, commands = part.record_claim(upload, update, now, have=event.have)
    if taken.status is Status.REFUSED:
        return _refuse_early(gateway, taken, update, commands)
    return _granting(with_upload(gateway, taken), [], now)


def _same(known: Update, update: Update) -> bool:
    return (known.run, known.attempt, known.blob.digest) == (update.run, update.attempt, update.blob.digest)


def _examines(gateway: Gateway, task: object, update: Update) -> bool:
    """Whether the update answers a task whose updates are summed here."""
    if not isinstance(task, TrainTask) or task.masking is not None or task.statistics is not None:
        return False
    return (update.run, update.attempt, update.round) == (task.run, task.attempt, task.round)


def _refuse_early(gateway: Gateway, refused: Participant, update: Update, notes: list[RoundCommand]) -> Step:
    detail = next((note.detail for note in notes if isinstance(note, Note)), "")
    receipt = SiteReceipt(site=gateway.site, reason=refused.reason, detail=detail[:500])
    judged = update.model_copy(update={"receipt": receipt})
    without = without_upload(gateway, update.device)
    return _with_known_update(without, judged), [
        events.RecordRefused(judged),
        events.SendAbove(judged, update.device),
    ]


def _with_known_update(gateway: Gateway, update: Update) -> Gateway:
    updates = {**gateway.updates, update.device: update}
    return replace(gateway, updates=updates, pending=gateway.pending | {update.device})


def take_chunk(gateway: Gateway, device: str, chunk: Chunk, now: float) -> Step:
    """Take a chunk of an update; raises `PeerError` for one that does not fit."""
    upload = gateway.uploads.get(device)
    if upload is not None:
        taken, commands = part.receive_chunk(upload, chunk, now)
        return _granting(with_upload(gateway, taken), _commands(taken, commands), now)
    task = gateway.tasks.get(device)
    summed = isinstance(task, TrainTask) and task.masking is None and task.statistics is None
    return gateway, [events.PassChunkOn(device, chunk)] if gateway.below(device) or not summed else []


def on_examined(gateway: Gateway, event: events.UpdateExamined, now: float) -> Step:
    update = event.update
    upload = gateway.uploads.get(update.device)
    if upload is None or upload.update is None or upload.status is not Status.CHECKING:
        return gateway, []
    if not _same(upload.update, update):
        return gateway, []
    done = _with_known_update(without_upload(gateway, update.device), update)
    return _granting(done, _receipt(update), now)


def _receipt(update: Update) -> list[events.Command]:
    """An update with its receipt; small groups are sent along without a request."""
    sent = update.sent_blob
    along = [events.SendChunksAbove(sent, 0, 1, update.device)] if sent is not None and sent.inline else []
    return [events.SendAbove(update, update.device), *along]


def on_answer(gateway: Gateway, answer: Acknowledgement | Refusal) -> Gateway:
    """The receipt of an update was answered; one that is refused makes room for another of the same task."""
    known = gateway.updates.get(answer.device)
    if known is None or (answer.attempt, answer.digest) != (known.attempt, known.blob.digest):
        return gateway
    settled = replace(gateway, pending=gateway.pending - {answer.device})
    if isinstance(answer, Acknowledgement):
        return settled
    others = {device: update for device, update in gateway.updates.items() if device != answer.device}
    return replace(settled, updates=others)


def on_lost(gateway: Gateway, refusal: Refusal) -> Step | None:
    """A device no longer has the update that it has claimed; None if the refusal is about something else."""
    upload = gateway.uploads.get(refusal.device)
    claimed_blob = None if upload is None or upload.update is None else upload.update.blob
    if claimed_blob is None or refusal.digest != claimed_blob.digest:
        return None
    return without_upload(gateway, refusal.device), []


def is_here(gateway: Gateway, request: BlobRequest) -> bool:
    """Whether what is above requests the small groups of an update that lies here."""
    update = gateway.updates.get(request.device)
    return update is not None and update.sent_blob is not None and update.sent_blob.digest == request.digest


def repeat_receipts(gateway: Gateway) -> list[events.Command]:
    return [command for device in sorted(gateway.pending) for command in _receipt(gateway.updates[device])]


def tick(gateway: Gateway, now: float) -> Step:
    """Repeat what devices have not answered; silent ones lose their turn."""
    commands: list[events.Command] = []
    for device, upload in gateway.uploads.items():
        ticked, more = part.tick(upload, now, alive=device in gateway.births)
        gateway = with_upload(gateway, ticked)
        commands += _commands(ticked, more)
    return _granting(gateway, commands, now)


def _granting(gateway: Gateway, commands: list[events.Command], now: float) -> Step:
    """Let the next devices upload: a limited number at once, and no more bytes than the broker queues."""
    most = gateway.terms.uploads_at_once if gateway.terms is not None else 0
    sending = [upload for upload in gateway.uploads.values() if upload.status is Status.UPLOADING]
    coming = sum(map(part.bytes_in_flight, sending))
    busy = len(sending)
    waiting = [upload for upload in gateway.uploads.values() if upload.status is Status.WAITING]
    # Devices that lost their turn come last.
    for upload in sorted(waiting, key=lambda upload: upload.receiving is not None):
        coming += part.bytes_in_flight(upload)
        if busy >= most or (busy and coming > UPLOADING_BYTES):
            break
        granted, more = part.grant_upload(upload, now)
        gateway, busy = with_upload(gateway, granted), busy + 1
        commands = commands + _commands(granted, more)
    return gateway, commands


def _commands(upload: Participant, commands: list[RoundCommand]) -> list[events.Command]:
    made: list[events.Command] = []
    for command in commands:
        match command:
            case WriteUpdateChunk(_, chunk):
                made.append(chunk)
            case CheckUpdate(_, update):
                task = upload.assignment.task
                assert isinstance(task, TrainTask)
                made.append(events.ExamineUpdate(update, task))
            case Send() | Note():
                made.append(command)
    return made
