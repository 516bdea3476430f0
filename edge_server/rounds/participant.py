"""One selected device in one round: offered, accepted, uploading, checked, counted; or missed."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from edge_client.transport import chunk_transfer
from edge_client.transport.chunk_transfer import Receiving
from edge_server.rounds import events
from schemas.errors import Reason
from schemas.messages import DeliverTask, Delivery, TaskReply, Update
from schemas.tensors.chunks import NO_CHUNKS, Chunk, ChunkSet

OFFER_PATIENCE_S = 5.0  # Seconds before an unanswered offer is repeated
CHECK_UP_S = 30.0  # Seconds between offers to a device that has accepted, in case it has lost its task
MAX_CLAIMS = 8
"""Different updates accepted for one task: a restarted device may train again, but each fills the disk."""


class Status(StrEnum):
    """How far a participant is. The last four are final for this round."""

    # Enum.__hash__ is written in Python and slow; statuses are looked up for every participant.
    __hash__ = str.__hash__
    OFFERED = "offered"
    ACCEPTED = "training"
    WAITING = "waiting"
    UPLOADING = "uploading"
    CHECKING = "checking"
    COUNTED = "done"
    DECLINED = "declined"
    REFUSED = "refused"
    MISSED = "missed"


FINAL = frozenset({Status.COUNTED, Status.DECLINED, Status.REFUSED, Status.MISSED})
AT_WORK = frozenset(Status) - FINAL
SENDING = frozenset({Status.UPLOADING, Status.CHECKING})


@dataclass(frozen=True)
class Participant:
    """A device's part in the round; `update` is its newest claim, `receiving` the transfer of its blob.

    `began` and `deadline` are in seconds of the server's clock; `detail` says more of the `reason` why the
    device has declined or its update was refused. `by_chunks`: the claimed blob is not in the object store,
    so it comes in chunks.
    """

    device: str
    assignment: events.Assignment
    deadline: float
    status: Status = Status.OFFERED
    offer_at: float = 0.0
    update: Update | None = None
    receiving: Receiving | None = None
    reason: Reason | None = None
    detail: str = ""
    claims: int = 0
    by_chunks: bool = False
    began: float = -math.inf

    @property
    def final(self) -> bool:
        """Whether the device can no longer change its part in the round."""
        return self.status in FINAL

    def is_meant(self, answer: TaskReply | Update | Delivery) -> bool:
        task = self.assignment.task
        if isinstance(answer, Update if isinstance(task, DeliverTask) else Delivery):
            return False
        return (answer.run, answer.attempt, answer.round) == (task.run, task.attempt, task.round)


Step = tuple[Participant, list[events.Command]]


def mark_missed(participant: Participant) -> Participant:
    return replace(participant, status=Status.MISSED, receiving=None)


def offer(participant: Participant, now: float) -> Step:
    """Send the task, and with the first offer its inline blobs."""
    time_left = max(0.0, participant.deadline - now)
    task = participant.assignment.task.model_copy(update={"deadline_s": time_left})
    first = participant.offer_at == 0
    inline = [
        events.SendChunks(participant.device, ref, 0, 1, pushed=True) for ref in task.pushed_blobs() if first
    ]
    patience = CHECK_UP_S if participant.status is Status.ACCEPTED else OFFER_PATIENCE_S
    return replace(participant, offer_at=now + patience), [events.Send(participant.device, task), *inline]


def record_reply(
    participant: Participant, now: float, *, accepted: bool, reason: Reason | None, detail: str
) -> Step:
    if participant.final:
        return participant, []
    if accepted:
        if participant.status is not Status.OFFERED:
            return participant, []
        return replace(participant, status=Status.ACCEPTED, offer_at=now + CHECK_UP_S), []
    declined = replace(participant, status=Status.DECLINED, reason=reason, detail=detail, receiving=None)
    return declined, [events.Note("declined the task", participant.device, reason, detail)]


def record_claim(participant: Participant, update: Update, now: float, *, have: ChunkSet = NO_CHUNKS) -> Step:
    """Take a device's claim to have an update; a different update replaces the earlier claim.

    `have` are the chunks already here. Training time is capped at the time since the offer.
    """
    update = _in_time(participant, update, now)
    if participant.update == update and participant.status is not Status.OFFERED:
        return participant, []
    if update.blob.size > participant.assignment.max_bytes:
        detail = f"{update.blob.size} bytes, at most {participant.assignment.max_bytes} fit its sub-model"
        return refuse(participant, Reason.OVERSIZED, detail)
    begun = Receiving(update.sent_blob, have=have) if have and update.sent_blob is not None else None
    if participant.claims == MAX_CLAIMS:
        return refuse(participant, Reason.OVERSIZED, f"more than {MAX_CLAIMS} different updates of one task")
    another = participant.update is None or participant.update.blob != update.blob
    waiting = replace(participant, status=Status.WAITING, update=update, receiving=begun)
    by_chunks = participant.by_chunks and not another
    return replace(waiting, claims=participant.claims + another, by_chunks=by_chunks), []


def _in_time(participant: Participant, update: Update, now: float) -> Update:
    """The update with its training time capped; the same cap applies when it is claimed again."""
    known, metrics = participant.update, update.metrics
    again = known is not None and known.blob.digest == update.blob.digest
    most = known.metrics.seconds if known is not None and again else max(0.0, now - participant.began)
    if metrics.seconds <= most:
        return update
    return update.model_copy(update={"metrics": metrics.model_copy(update={"seconds": most})})


def bytes_in_flight(participant: Participant) -> int:
    """Bytes of its update that may be in flight at once while it uploads."""
    blob = None if participant.update is None else participant.update.sent_blob
    if blob is None:
        return 0
    return min(blob.size, chunk_transfer.WINDOW * blob.chunk_bytes)


def grant_upload(participant: Participant, now: float) -> Step:
    """Begin to fetch the claimed update, or continue after the device stopped sending."""
    assert participant.update is not None
    if participant.receiving is not None and participant.receiving.complete:
        check = events.CheckUpdate(participant.device, participant.update)
        return replace(participant, status=Status.CHECKING), [check]
    sent = participant.update.sent_blob
    if sent is None or (participant.update.deposited and not participant.by_chunks):
        return skip_upload(participant)
    if participant.receiving is not None:
        receiving, asks = chunk_transfer.resume(participant.receiving, now)
    else:
        receiving, asks = chunk_transfer.start_transfer(sent, now)
    granted = replace(participant, status=Status.UPLOADING, receiving=receiving)
    return granted, _commands(granted, asks)


def receive_chunk(participant: Participant, chunk: Chunk, now: float) -> Step:
    """Take a chunk of the update; an inline chunk needs no grant.

    Chunks of other blobs are late chunks of earlier updates and are ignored.
    """
    sent = None if participant.update is None else participant.update.sent_blob
    if sent is None or not sent.digest.startswith(chunk.prefix):
        return participant, []
    if participant.status is Status.WAITING and sent.inline:
        participant, _ = grant_upload(participant, now)
    if participant.status is not Status.UPLOADING or participant.receiving is None:
        return participant, []
    receiving, commands = chunk_transfer.accept(participant.receiving, chunk, now)
    status = Status.CHECKING if receiving.complete else Status.UPLOADING
    taken = replace(participant, receiving=receiving, status=status)
    return taken, _commands(taken, commands)


def skip_upload(participant: Participant) -> Step:
    """The claimed update is in the store already: check it without a transfer."""
    if participant.update is None or participant.status not in (Status.WAITING, Status.UPLOADING):
        return participant, []
    there = replace(participant, status=Status.CHECKING, receiving=None)
    return there, [events.CheckUpdate(participant.device, participant.update)]


def fall_back_to_chunks(participant: Participant, have: ChunkSet) -> Step:
    """The claimed update is not in the object store: request the chunks that are missing."""
    if participant.update is None or participant.status is not Status.CHECKING:
        return participant, []
    begun = Receiving(participant.update.blob, have=have) if have else None
    waiting = replace(participant, status=Status.WAITING, receiving=begun, by_chunks=True)
    return waiting, [events.Note("update is not in the store, it comes in chunks", participant.device)]


def tick(participant: Participant, now: float, *, alive: bool) -> Step:
    """Repeat what has been unanswered for too long, to connected devices only.

    A silent uploader loses its turn.
    """
    if not alive:
        return participant, []
    if participant.status in (Status.OFFERED, Status.ACCEPTED) and now >= participant.offer_at:
        return offer(participant, now)
    if participant.status is Status.UPLOADING and participant.receiving is not None:
        if participant.receiving.silent(now):
            return replace(participant, status=Status.WAITING), []
        receiving, asks = chunk_transfer.tick(participant.receiving, now)
        return replace(participant, receiving=receiving), _commands(participant, asks)
    return participant, []


def rejoin(participant: Participant, now: float) -> Step:
    if participant.final or participant.status is Status.CHECKING:
        return participant, []
    offered, commands = offer(participant, now)
    if participant.receiving is None:
        return replace(offered, status=Status.OFFERED), commands
    if participant.status is not Status.UPLOADING:
        return offered, commands
    receiving, asks = chunk_transfer.resume(participant.receiving, now)
    return replace(offered, receiving=receiving), [*commands, *_commands(participant, asks)]


def refuse(participant: Participant, reason: Reason, detail: str) -> Step:
    """Refuse the update in this round; the caller informs the device."""
    refused = replace(participant, status=Status.REFUSED, reason=reason, detail=detail, receiving=None)
    return refused, [events.Note("update refused", participant.device, reason, detail)]


def _commands(
    participant: Participant, commands: list[chunk_transfer.TransferCommand]
) -> list[events.Command]:
    made: list[events.Command] = []
    for command in commands:
        match command:
            case chunk_transfer.RequestChunks():
                request = command.request(participant.assignment.task.federation, participant.device)
                made.append(events.Send(participant.device, request))
            case chunk_transfer.WriteChunk():
                made.append(events.WriteUpdateChunk(participant.device, command))
            case chunk_transfer.VerifyBlob():
                assert participant.update is not None
                made.append(events.CheckUpdate(participant.device, participant.update))
    return made
