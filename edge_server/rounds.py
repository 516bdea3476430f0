"""The rounds of a federation as a pure state machine: who is there, who was asked, what counts, what is next.

    waiting -> planning -> training -> closing -> (next round) ... -> delivering -> ended

No socket, clock, thread or randomness: `step(federation, event, now)` returns the next state and the
commands to carry out. A round ends when every participant has a final status, or at its deadline; it counts
when enough updates do (the quorum) and is otherwise abandoned and planned anew. A device that dies can delay
a round by `rejoin_s` and a silent one by the deadline: neither can stop it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal

from edge_server import participant as part
from edge_server.fleet import Fleet
from edge_server.participant import Participant, Status
from edge_server.round_events import (
    Announce,
    ChunkArrived,
    CloseRound,
    Command,
    Deliver,
    End,
    Event,
    FromFleet,
    Note,
    PlanRound,
    RoundClosed,
    RoundPlanned,
    Send,
    SendChunks,
    Started,
    Stopped,
    Tick,
    UpdateChecked,
)
from schemas.messages import (
    Acknowledgement,
    Birth,
    BlobRequest,
    Death,
    Delivery,
    FederationEnd,
    FromDevice,
    Reason,
    Refusal,
    RoundAnnouncement,
    TaskReply,
    Telemetry,
    Update,
)

RETRY_S = 2.0
"""Pause before an abandoned round is planned again; doubles with each abandonment."""


class Phase(StrEnum):
    """Where the run is."""

    STARTING = "starting"
    WAITING = "waiting"
    PLANNING = "planning"
    TRAINING = "training"
    CLOSING = "aggregating"
    DELIVERING = "delivering"
    ENDED = "ended"


IN_ROUND = frozenset({Phase.TRAINING, Phase.DELIVERING})


@dataclass(frozen=True)
class RoundRules:
    """What makes a round: times in seconds, `quorum` as a share of the selected devices.

    A run begins with `start_clients` devices, and any later round with `min_clients`.
    """

    rounds: int
    start_clients: int = 1
    min_clients: int = 1
    quorum: float = 0.5
    deadline_s: float = 600.0
    rejoin_s: float = 15.0
    uploads_at_once: int = 32
    attempts: int = 5
    deliver: bool = True


@dataclass(frozen=True)
class Federation:
    """The whole state of a run, as far as rounds go. `counted` holds each device's last counted update."""

    name: str
    run: str
    rules: RoundRules
    phase: Phase = Phase.STARTING
    round: int = 1
    attempt: int = 0
    fleet: Fleet = field(default_factory=Fleet)
    participants: Mapping[str, Participant] = field(default_factory=dict)
    deadline: float = 0.0
    not_before: float = 0.0
    abandoned: int = 0
    counted: Mapping[str, Update] = field(default_factory=dict)


Step = tuple[Federation, list[Command]]


def step(federation: Federation, event: Event, now: float) -> Step:
    """Apply one event; raises `PeerError` for a chunk that does not fit its blob (the state is unchanged)."""
    if federation.phase is Phase.ENDED:
        return federation, []
    applied, commands = _apply(federation, event, now)
    settled, more = _settle(applied, now)
    return settled, commands + more


def _apply(federation: Federation, event: Event, now: float) -> Step:
    match event:
        case Started():
            return _wait(federation, now)
        case FromFleet(message):
            return _receive(federation, message, now)
        case ChunkArrived(device, chunk):
            participant = federation.participants.get(device)
            if participant is None or federation.phase is not Phase.TRAINING:
                return federation, []
            return _with(federation, part.arrived(participant, chunk, now))
        case RoundPlanned():
            return _begin(federation, event, now)
        case UpdateChecked():
            return _checked(federation, event)
        case RoundClosed(number):
            return _advance(federation, number, now)
        case Stopped():
            return _end(federation, "interrupted", "stopped by the user")
        case Tick():
            return _tick(federation, now)


def _receive(federation: Federation, message: FromDevice, now: float) -> Step:
    match message:
        case Birth():
            return _born(federation, message, now)
        case Death():
            return replace(federation, fleet=federation.fleet.died(message, now)), []
        case TaskReply():
            return _replied(federation, message)
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
    return _with(born, part.rejoined(participant, now, time_left=_time_left(born, now)))


def _participant(federation: Federation, answer: TaskReply | Delivery) -> Participant | None:
    """The one who answers, if it is the task at hand that is answered."""
    current = federation.phase in IN_ROUND and _is_current(federation, answer)
    return federation.participants.get(answer.device) if current else None


def _is_current(federation: Federation, answer: TaskReply | Update | Delivery) -> bool:
    return (answer.run, answer.attempt) == (federation.run, federation.attempt)


def _replied(federation: Federation, reply: TaskReply) -> Step:
    answers = [] if reply.accepted else [_acknowledge(reply)]
    participant = _participant(federation, reply)
    if participant is None:
        return federation, answers
    replied = part.replied(participant, accepted=reply.accepted, reason=reply.reason, detail=reply.detail)
    return _with(federation, (replied[0], [*answers, *replied[1]]))


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
    return _with(federation, (claimed, commands))


def _checked(federation: Federation, event: UpdateChecked) -> Step:
    participant = federation.participants.get(event.device)
    if participant is None or participant.update is None or participant.status is not Status.CHECKING:
        return federation, []
    update = participant.update
    if update.blob.digest != event.digest:
        return federation, []
    if event.reason is not None:
        refused, notes = part.refuse(participant, event.reason, event.detail)
        return _with(federation, (refused, [*notes, *_refuse(update, event.reason, event.detail)]))
    counted = replace(federation, counted={**federation.counted, event.device: update})
    done = replace(participant, status=Status.COUNTED, receiving=None)
    return _with(counted, (done, [_acknowledge(update)]))


def _delivered(federation: Federation, delivery: Delivery) -> Step:
    answer = _acknowledge(delivery)
    participant = _participant(federation, delivery)
    if participant is None or participant.final or federation.phase is not Phase.DELIVERING:
        return federation, [answer]
    return _with(federation, (replace(participant, status=Status.COUNTED), [answer, Deliver(delivery)]))


def _upload_lost(federation: Federation, refusal: Refusal, now: float) -> Step:
    """The device no longer has what it announced (it was restarted): offer the task again."""
    participant = federation.participants.get(refusal.device)
    if participant is None or participant.status is not Status.UPLOADING:
        return federation, []
    if participant.update is None or refusal.digest != participant.update.blob.digest:
        return federation, []
    lost = replace(participant, status=Status.OFFERED, update=None, receiving=None)
    return _with(federation, part.offer(lost, now, time_left=_time_left(federation, now)))


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


def _with(federation: Federation, stepped: tuple[Participant, list[Command]]) -> Step:
    participant, commands = stepped
    participants = {**federation.participants, participant.device: participant}
    return replace(federation, participants=participants), commands


def _time_left(federation: Federation, now: float) -> float:
    return max(0.0, federation.deadline - now)


def _wait(federation: Federation, not_before: float) -> Step:
    waiting = replace(federation, phase=Phase.WAITING, participants={}, not_before=not_before)
    return waiting, [_announce(waiting, "waiting")]


def _announce(
    federation: Federation, phase: Literal["waiting", "training", "aggregating", "delivering"]
) -> Command:
    return Announce(
        RoundAnnouncement(
            federation=federation.name,
            run=federation.run,
            round=federation.round,
            rounds=federation.rules.rounds,
            phase=phase,
            selected=len(federation.participants),
        )
    )


def _begin(federation: Federation, event: RoundPlanned, now: float) -> Step:
    delivering = federation.phase is Phase.DELIVERING
    if event.attempt != federation.attempt or not (delivering or federation.phase is Phase.PLANNING):
        return federation, []
    if not event.assignments:
        return _end(federation, "finished") if delivering else _abandon(federation, 0, now)
    begun = replace(
        federation,
        phase=Phase.DELIVERING if delivering else Phase.TRAINING,
        deadline=now + federation.rules.deadline_s,
        participants={
            device: Participant(device, assignment) for device, assignment in event.assignments.items()
        },
    )
    commands = [_announce(begun, "delivering" if delivering else "training")]
    for participant in begun.participants.values():
        begun, offers = _with(begun, part.offer(participant, now, time_left=federation.rules.deadline_s))
        commands += offers
    return begun, commands


def _advance(federation: Federation, number: int, now: float) -> Step:
    if federation.phase is not Phase.CLOSING or number != federation.round:
        return federation, []
    if number < federation.rules.rounds:
        return _wait(replace(federation, round=number + 1, abandoned=0), now)
    if not federation.rules.deliver:
        return _end(federation, "finished")
    attempt = federation.attempt + 1
    delivering = replace(federation, phase=Phase.DELIVERING, participants={}, attempt=attempt)
    return delivering, [PlanRound(number, attempt, federation.fleet.alive(), deliver=True)]


def _tick(federation: Federation, now: float) -> Step:
    if federation.phase not in IN_ROUND:
        return federation, []
    commands: list[Command] = []
    participants = dict(federation.participants)
    for device, participant in federation.participants.items():
        known = federation.fleet.devices.get(device)
        participants[device], more = part.tick(
            participant,
            now,
            alive=known is not None and known.alive,
            time_left=_time_left(federation, now),
        )
        commands += more
    return _give_up(replace(federation, participants=participants), now), commands


def _settle(federation: Federation, now: float) -> Step:
    """Do what the state itself calls for, whatever event led to it."""
    if federation.phase is Phase.WAITING:
        alive = federation.fleet.alive()
        if now >= federation.not_before and len(alive) >= _needed(federation):
            attempt = federation.attempt + 1
            planning = replace(federation, phase=Phase.PLANNING, attempt=attempt)
            return planning, [PlanRound(federation.round, attempt, alive, retry=federation.abandoned)]
        return federation, []
    if federation.phase not in IN_ROUND or not federation.participants:
        return federation, []
    granted, commands = _grant(federation, now)
    if not all(participant.final for participant in granted.participants.values()):
        return granted, commands
    closed, more = _finish_round(granted, now)
    return closed, commands + more


def _needed(federation: Federation) -> int:
    rules = federation.rules
    first = federation.round == 1 and federation.abandoned == 0
    return max(rules.start_clients, rules.min_clients) if first else rules.min_clients


def _give_up(federation: Federation, now: float) -> Federation:
    """Mark who has missed the round: everyone at the deadline, a lost device after `rejoin_s`."""
    late = now >= federation.deadline
    participants = dict(federation.participants)
    for device, participant in federation.participants.items():
        known = federation.fleet.devices.get(device)
        lost_at = known.lost_at if known is not None else None
        gone = lost_at is not None and now >= lost_at + federation.rules.rejoin_s
        if (late or gone) and not participant.final and participant.status is not Status.CHECKING:
            participants[device] = replace(participant, status=Status.MISSED, receiving=None)
    return replace(federation, participants=participants)


def _grant(federation: Federation, now: float) -> Step:
    """Let the next devices upload, never more than `uploads_at_once`."""
    sending = sum(p.status in part.SENDING for p in federation.participants.values())
    waiting = [p for p in federation.participants.values() if p.status is Status.WAITING]
    # Whoever had a turn and fell silent comes last.
    waiting.sort(key=lambda participant: participant.receiving is not None)
    commands: list[Command] = []
    for participant in waiting[: max(0, federation.rules.uploads_at_once - sending)]:
        federation, more = _with(federation, part.grant(participant, now))
        commands += more
    return federation, commands


def _finish_round(federation: Federation, now: float) -> Step:
    if federation.phase is Phase.DELIVERING:
        return _end(federation, "finished")
    participants = federation.participants
    updates = {d: p.update for d, p in participants.items() if p.status is Status.COUNTED and p.update}
    if len(updates) < max(1, math.ceil(federation.rules.quorum * len(participants))):
        return _abandon(federation, len(updates), now)
    close = CloseRound(
        federation.round,
        updates=updates,
        selected=tuple(sorted(participants)),
        dropped=tuple(sorted(d for d, p in participants.items() if p.status in _DROPPED)),
        rejected={d: p.reason for d, p in participants.items() if p.status is Status.REFUSED and p.reason},
    )
    return replace(federation, phase=Phase.CLOSING), [_announce(federation, "aggregating"), close]


_DROPPED = frozenset({Status.MISSED, Status.DECLINED})


def _abandon(federation: Federation, counted: int, now: float) -> Step:
    detail = (
        f"round {federation.round}: {counted} of {len(federation.participants)} updates, below the quorum"
    )
    if federation.abandoned >= federation.rules.attempts:
        return _end(federation, "failed", f"{detail}; given up after {federation.abandoned + 1} attempts")
    again = replace(federation, abandoned=federation.abandoned + 1)
    waiting, commands = _wait(again, now + RETRY_S * 2**federation.abandoned)
    return waiting, [Note("round abandoned", detail=detail), *commands]


def _end(
    federation: Federation, outcome: Literal["finished", "failed", "interrupted"], detail: str = ""
) -> Step:
    end = FederationEnd(
        federation=federation.name, run=federation.run, outcome=outcome, rounds=federation.rules.rounds
    )
    return replace(federation, phase=Phase.ENDED), [Announce(end), End(outcome, detail)]
