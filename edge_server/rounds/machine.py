"""The rounds of a federation as a pure state machine.

    waiting -> planning -> training -> closing -> (next round) ... -> delivering -> ended

Models may also be delivered between rounds: then a round follows, and not the end.

No socket, clock, thread or randomness: `step(federation, event, now)` returns the next state and the
commands to carry out. A killed server starts with the state that `recovery` reads from its journal. A round
ends when every participant has a final status, or at its deadline; it counts if enough updates do (the
quorum) and is otherwise abandoned and planned again. A device that dies can delay a round by `rejoin_s`, a
silent one until the deadline: neither can stop it. In buffered mode devices keep working in all of these
phases (see `modes`).
"""

from dataclasses import replace
from itertools import islice

from edge_server.rounds import admission, device_messages, events, quarantine, secure_aggregation
from edge_server.rounds import participant as part
from edge_server.rounds.broadcast import handlers
from edge_server.rounds.closing import RETRY_S, report_findings
from edge_server.rounds.modes import mode_of
from edge_server.rounds.participant import SENDING, Participant, Status, mark_missed
from edge_server.rounds.participants import Participants
from edge_server.rounds.planning import offer_tasks, relabel, wait_for_devices
from edge_server.rounds.rollback import can_undo, finish_rollback, request_rollback
from edge_server.rounds.sites import site_rounds
from edge_server.rounds.state import (
    Buffering,
    Federation,
    Phase,
    RoundRules,
    Step,
    announce,
    end,
    is_gathered,
    is_over,
    with_participant,
)

UPLOADING_BYTES = 48 * 1024 * 1024
"""Bytes of uploads in flight, below the 64 MB that Mosquitto queues for one client as configured here."""
CHECKS_PER_UPLOAD = 4  # Whole updates that may wait for their check, for each upload that may run

__all__ = ["RETRY_S", "Buffering", "Federation", "Phase", "RoundRules", "Step", "step"]


def step(federation: Federation, event: events.Event, now: float) -> Step:
    """Apply one event; raises `PeerError` for a chunk that does not fit its blob (the state is unchanged)."""
    if federation.phase is Phase.ENDED:
        return federation, []
    after, commands = _apply(federation, event, now)
    for settle in (_settle, handlers.settle):
        after, more = settle(after, now)
        commands = commands + more
    return after, secure_aggregation.with_segments(after, commands)


def _apply(federation: Federation, event: events.Event, now: float) -> Step:
    match event:
        case events.Started():
            return _start(federation, now)
        case events.Reconnected():
            return quarantine.doubt_all(federation, now), []
        case events.MessageReceived(message, have, accepted, retained):
            return device_messages.receive(
                federation, message, now, have=have, accepted=accepted, retained=retained
            )
        case events.ChunkReceived(device, chunk):
            return device_messages.receive_chunk(federation, device, chunk, now)
        case events.RoundPlanned():
            return _begin(federation, event, now)
        case events.UpdateStored(device):
            return device_messages.skip_upload(federation, device)
        case events.NotInObjectStore():
            return device_messages.fall_back_to_chunks(federation, event)
        case events.UpdateChecked():
            return device_messages.record_verdict(federation, event)
        case events.SiteSpoke() | events.SiteChunkReceived() | events.UpdatesWeighed() | events.SumChecked():
            return site_rounds.on_event(federation, event, now)
        case events.RoundClosed():
            return _advance(federation, event, now)
        case events.BlobsLost(digests):
            return device_messages.drop_lost_blobs(federation, digests), []
        case events.RolledBack():
            return _go_back(federation, event, now)
        case events.Misbehaved(device, reason):
            return quarantine.strike(federation, device, reason)
        case events.LabelsChanged(labels):
            return relabel(federation, labels)
        case events.StopRequested():
            return end(federation, "interrupted", "stopped by the user")
        case events.ServerFailed(detail):
            return end(federation, "failed", detail)
        case events.Tick():
            return _tick(federation, now)


def _start(federation: Federation, now: float) -> Step:
    """A new run waits for devices; an interrupted one continues in its phase."""
    match federation.phase:
        case _ if federation.announced_end is not None:
            # Devices that know the end do no task of this run any more.
            return replace(federation, phase=Phase.STARTING, participants=Participants()), []
        case Phase.TRAINING:
            return federation, [announce(federation, "training")]
        case Phase.DELIVERING:
            return federation, [announce(federation, "delivering")]
        case _ if federation.attempt:
            return federation, [announce(federation, "waiting")]
        case _:
            return wait_for_devices(federation, federation.rules.opening.not_before(federation.round, now))


def _begin(federation: Federation, event: events.RoundPlanned, now: float) -> Step:
    if event.attempt != federation.attempt:
        return federation, []
    if federation.phase is Phase.PLANNING and event.ended:
        return _conclude(replace(federation, round=federation.round - 1, ended=event.ended))
    if federation.phase is Phase.PLANNING:
        return mode_of(federation).begin(federation, event, now)
    if federation.phase is not Phase.DELIVERING:
        return federation, []
    if not event.assignments:
        return _end_delivery(federation, now)
    begun, offers = offer_tasks(replace(federation, participants=Participants()), event.assignments, now)
    return begun, [announce(begun, "delivering"), *offers]


def _advance(federation: Federation, event: events.RoundClosed, now: float) -> Step:
    if federation.phase is not Phase.CLOSING or event.round != federation.round:
        return federation, []
    closed, notes = report_findings(replace(federation, diverged=event.diverged), event)
    if is_gathered(closed, now):
        following, commands = _go_on(closed, now)
        return following, notes + commands
    return replace(closed, phase=Phase.STARTING), [*notes, announce(closed, "waiting")]


def _go_back(federation: Federation, event: events.RolledBack, now: float) -> Step:
    """An earlier model is in place; or it cannot be restored, and the run fails."""
    if federation.phase is not Phase.CLOSING or event.command.undone != federation.round:
        return federation, []
    if event.failed:
        why = f"{event.command.why}; the model before round {event.command.undone}: {event.failed}"
        return end(federation, "failed", why)
    after, notes = finish_rollback(federation, event)
    went_on, commands = _conclude(after) if is_over(after) else _next_round(after, now)
    return went_on, [*notes, *commands]


def _go_on(federation: Federation, now: float) -> Step:
    if federation.announced_end is not None:
        return end(federation, federation.announced_end.outcome, federation.announced_end.detail)
    if federation.round == 0:
        return _next_round(federation, now)  # restarted in a first round that cannot be continued
    if federation.diverged and can_undo(federation, federation.round):
        why = f"the model of round {federation.round} yields no finite numbers"
        return request_rollback(federation, federation.round, why)
    if is_over(federation):
        return _conclude(federation)
    every = federation.rules.deliver_every
    if every and federation.round % every == 0:
        return _deliver(federation)
    return _next_round(federation, now)


def _next_round(federation: Federation, now: float) -> Step:
    following = replace(federation, round=federation.round + 1, plannings=0, abandoned=0, untrained=0)
    return mode_of(federation).advance(following, now)


def _conclude(federation: Federation) -> Step:
    """No round follows: deliver the model of the last round, if there was one."""
    if federation.round == 0:
        return end(federation, "failed")
    return _deliver(federation) if federation.rules.deliver else end(federation, "finished")


def _deliver(federation: Federation) -> Step:
    attempt = federation.attempt + 1
    delivering = replace(federation, phase=Phase.DELIVERING, participants=Participants(), attempt=attempt)
    plan = events.PlanRound(
        federation.round,
        attempt,
        federation.fleet.fitting(),
        deliver=True,
        classes=federation.classes.names,
        columns=federation.columns.columns,
    )
    return delivering, [plan]


def _end_delivery(federation: Federation, now: float) -> Step:
    """Every device has its model, or has exceeded its time."""
    # A restarted server does not know that the run ended early: the next planning says so again.
    over = is_over(federation) or not federation.rules.deliver_every
    return end(federation, "finished") if over else _next_round(federation, now)


def _tick(federation: Federation, now: float) -> Step:
    commands: list[events.Command] = []
    changed: list[Participant] = []
    for participant in federation.at_work:
        known = federation.fleet.devices.get(participant.device)
        alive = known is not None and known.alive
        ticked, more = part.tick(participant, now, alive=alive)
        if ticked is not participant:
            changed.append(ticked)
        commands += more
    after = replace(federation, participants=federation.participants.with_all(changed))
    for tick in (admission.tick, quarantine.tick, _give_up, site_rounds.tick):
        after, more = tick(after, now)
        commands += more
    return after, commands


def _give_up(federation: Federation, now: float) -> Step:
    """Mark participants as missed: at their deadline, or `rejoin_s` after the device was lost."""
    out, commands = [], []
    for participant in federation.at_work:
        known = federation.fleet.devices.get(participant.device)
        lost_at = known.lost_at if known is not None else None
        gone = lost_at is not None and now >= lost_at + federation.rules.rejoin_s
        late = now >= participant.deadline
        if (late or gone) and participant.status is not Status.CHECKING:
            out.append(mark_missed(participant))
        if late and participant.status is Status.OFFERED:
            federation, notes = quarantine.miss_deadline(federation, participant.device, now)
            commands += notes
    return replace(federation, participants=federation.participants.with_all(out)), commands


def _settle(federation: Federation, now: float) -> Step:
    granted, commands = _grant(federation, now)
    if granted.phase is Phase.STARTING and granted.attempt and is_gathered(granted, now):
        settled, more = _go_on(granted, now)
    elif granted.phase is not Phase.DELIVERING:
        settled, more = mode_of(granted).settle(granted, now)
    elif granted.participants and not granted.working:
        delivered, ends = _end_delivery(granted, now)
        settled, more = mode_of(delivered).settle(delivered, now)
        more = ends + more
    else:
        return granted, commands
    return settled, commands + more


def _grant(federation: Federation, now: float) -> Step:
    """Let the next devices upload, except during a planning.

    At most `uploads_at_once`, and no more bytes than the broker queues for the server: it drops the rest.
    Checks that wait, `CHECKS_PER_UPLOAD` for each, hold uploads up.
    """
    if federation.phase is Phase.PLANNING:
        return federation, []
    at_once, count = federation.rules.uploads_at_once, federation.participants.count
    free = min(at_once - count({Status.UPLOADING}), CHECKS_PER_UPLOAD * at_once - count(SENDING))
    if free <= 0 or not count({Status.WAITING}):
        return federation, []
    participants = federation.participants
    waiting = (participants[name] for name in participants.queues[Status.WAITING])
    fresh = list(islice((uploader for uploader in waiting if uploader.receiving is None), free))
    if len(fresh) < free:
        # Devices that lost their turn come last.
        again = participants.having({Status.WAITING})
        silent = (uploader for uploader in again if uploader.receiving is not None)
        fresh += islice(silent, free - len(fresh))
    commands: list[events.Command] = []
    coming = sum(map(part.bytes_in_flight, federation.participants.having({Status.UPLOADING})))
    for participant in fresh:
        coming += part.bytes_in_flight(participant)
        if coming > UPLOADING_BYTES and federation.participants.count({Status.UPLOADING}):
            break
        federation, more = with_participant(federation, part.grant_upload(participant, now))
        commands += more
    return federation, commands
