"""The rounds of a federation as a pure state machine: who is there, who was asked, what counts, what is next.

    waiting -> planning -> training -> closing -> (next round) ... -> delivering -> ended

No socket, clock, thread or randomness: `step(federation, event, now)` returns the next state and the
commands to carry out. A round ends when every participant has a final status, or at its deadline; it counts
when enough updates do (the quorum) and is otherwise abandoned and planned anew. A device that dies can delay
a round by `rejoin_s` and a silent one by the deadline: neither can stop it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from edge_server import participant as part
from edge_server.dealings import checked, receive
from edge_server.federation import (
    IN_ROUND,
    Federation,
    Phase,
    RoundRules,
    Step,
    time_left,
    with_participant,
)
from edge_server.participant import Participant, Status
from edge_server.round_events import (
    Announce,
    Broke,
    ChunkArrived,
    CloseRound,
    Command,
    End,
    Event,
    FromFleet,
    Note,
    PlanRound,
    RoundClosed,
    RoundPlanned,
    Started,
    Stopped,
    Tick,
    UpdateChecked,
)
from schemas.messages import FederationEnd, RoundAnnouncement

__all__ = ["IN_ROUND", "Federation", "Phase", "RoundRules", "Step", "step"]

RETRY_S = 2.0
"""Pause before an abandoned round is planned again; doubles with each abandonment."""


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
            return receive(federation, message, now)
        case ChunkArrived(device, chunk):
            participant = federation.participants.get(device)
            if participant is None or federation.phase is not Phase.TRAINING:
                return federation, []
            return with_participant(federation, part.arrived(participant, chunk, now))
        case RoundPlanned():
            return _begin(federation, event, now)
        case UpdateChecked():
            return checked(federation, event)
        case RoundClosed(number):
            return _advance(federation, number, now)
        case Stopped():
            return _end(federation, "interrupted", "stopped by the user")
        case Broke(detail):
            return _end(federation, "failed", detail)
        case Tick():
            return _tick(federation, now)


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
        return _end(federation, "finished") if delivering else _abandon(federation, "no device chosen", now)
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
        begun, offers = with_participant(
            begun, part.offer(participant, now, time_left=federation.rules.deadline_s)
        )
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
            time_left=time_left(federation, now),
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
        federation, more = with_participant(federation, part.grant(participant, now))
        commands += more
    return federation, commands


def _finish_round(federation: Federation, now: float) -> Step:
    if federation.phase is Phase.DELIVERING:
        return _end(federation, "finished")
    participants = federation.participants
    updates = {d: p.update for d, p in participants.items() if p.status is Status.COUNTED and p.update}
    if len(updates) < max(1, math.ceil(federation.rules.quorum * len(participants))):
        return _abandon(federation, f"{len(updates)} of {len(participants)} updates, below the quorum", now)
    close = CloseRound(
        federation.round,
        updates=updates,
        selected=tuple(sorted(participants)),
        dropped=tuple(sorted(d for d, p in participants.items() if p.status in _DROPPED)),
        rejected={d: p.reason for d, p in participants.items() if p.status is Status.REFUSED and p.reason},
    )
    return replace(federation, phase=Phase.CLOSING), [_announce(federation, "aggregating"), close]


_DROPPED = frozenset({Status.MISSED, Status.DECLINED})


def _abandon(federation: Federation, why: str, now: float) -> Step:
    detail = f"round {federation.round}: {why}"
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
