"""Obtaining and keeping the lease of a federation, as a pure state machine.

    looking -> claiming -> held -> lost
       |          |                 ^
       +-> taken  +-> mute          +-- another server has a newer epoch

Without a claim that comes back the lease is mute, until something is heard on the topic: the broker's rules
forbid it, or the claim was lost. Claims are repeated.

A claim that counts is followed by renewals every `RENEW_S`; with the first one that it hears back a server
holds the lease, so everyone else knows that it may have served. Each renewal that it hears back gives it
`HOLD_S` from the moment at which it was sent; without one it must neither write nor send (`holds`). Others
wait for `SILENCE_S`, which is longer, from the moment at which they heard the last one. No clocks are
compared, and clocks need only run alike.

A server that has heard nothing cannot tell a dead holder from messages that the broker has dropped. The
broker retains the last message. It is read before a claim, which follows it, and after the claim: a holder
that lives has contradicted it.
"""

from dataclasses import replace

from edge_server.transport.lease.log import LeaseLog
from edge_server.transport.lease.state import (
    FORGOTTEN_S,
    GRACE_S,
    HOLD_S,
    LOOK_S,
    MUTE_S,
    NOT_YET,
    RENEW_S,
    SETTLE_S,
    SILENCE_S,
    Connected,
    Disconnected,
    Event,
    Heard,
    LeasePhase,
    LeaseState,
    ReadBack,
    Step,
    Tick,
)
from schemas.messages import Lease

__all__ = [
    "GRACE_S",
    "HOLD_S",
    "SILENCE_S",
    "Connected",
    "Disconnected",
    "Event",
    "Heard",
    "LeasePhase",
    "LeaseState",
    "ReadBack",
    "Step",
    "Tick",
    "give_up",
    "name_standby",
    "step",
]


def step(state: LeaseState, event: Event, now: float) -> Step:
    """Apply one event."""
    match event:
        case Connected() if state.connected:
            return _answered(state, now + LOOK_S) if state.stands_at == NOT_YET else state, []
        case Connected():
            begun = _unasked(replace(state, connected=True, log=state.log.connected(), since=now))
            return replace(begun, next_at=now + LOOK_S), []
        case Disconnected():
            return _disconnected(replace(state, connected=False, sent={}), now), []
        case Heard(lease, retained):
            return _heard(state, lease, now, retained=retained)
        case Tick(alive):
            return _tick(state, now, alive)


def name_standby(state: LeaseState, standby: str, now: float) -> Step:
    """Name the instance that may follow from now on, or none: the holder says so at once."""
    named = replace(state, synced=standby)
    return _renew(named, now) if state.phase is LeasePhase.HELD else (named, [])


def give_up(state: LeaseState, *, over: bool) -> Lease:
    """The last message of a holder that ends in order."""
    return state.message("over" if over else "free", state.log.beat + 1)


def _disconnected(state: LeaseState, now: float) -> LeaseState:
    """A claim that the broker may have taken stands if it is the last message after the next connection."""
    if state.phase is not LeasePhase.CLAIMING:
        return state
    return replace(state, phase=LeasePhase.LOOKING, log=_without_claim(state), cut_off=True)


def _without_claim(state: LeaseState) -> LeaseLog:
    return LeaseLog() if _is_own(state, state.log.last) else state.log


def _is_own(state: LeaseState, lease: Lease | None) -> bool:
    return lease is not None and lease.holder.instance == state.me.instance


def _heard(state: LeaseState, lease: Lease, now: float, *, retained: bool) -> Step:
    own = _is_own(state, lease)
    # Devices obey the newest epoch: its holder does not yield to an older one.
    older = state.phase is LeasePhase.HELD and lease.epoch < state.epoch
    counts = state.log.counts(lease, retained=retained) and not older
    # The answer to a `ReadBack` counts as heard only if it is a later message, and never during a claim.
    known = state.phase is LeasePhase.CLAIMING or _is_same(state.log.last, lease)
    hears = counts and not (retained and state.asked and known)
    heard = replace(state, log=state.log.hear(lease, now, retained=retained)) if hears else state
    heard = replace(heard, cut_off=heard.cut_off and own)
    match state.phase:
        case LeasePhase.HELD:
            return _heard_holding(heard, lease, now, own=own, counts=counts and not retained)
        case LeasePhase.CLAIMING:
            return _heard_claiming(heard, lease, now, own=own, counts=counts, retained=retained)
        case LeasePhase.LOOKING:
            return _heard_looking(heard, lease, now, counts=counts, retained=retained)
        case LeasePhase.MUTE if not retained:
            # The broker passes the topic on: it had lost the claim.
            looking = replace(heard, phase=LeasePhase.LOOKING, since=now, beats=0)
            return _heard_looking(looking, lease, now, counts=counts, retained=False)
        case _:
            return heard, []


def _is_same(known: Lease | None, lease: Lease) -> bool:
    if known is None:
        return False
    return (known.holder.instance, known.state, known.beat) == (
        lease.holder.instance,
        lease.state,
        lease.beat,
    )


def _heard_holding(state: LeaseState, lease: Lease, now: float, *, own: bool, counts: bool) -> Step:
    if own and counts and lease.state == "lost":
        # The server's own connection has broken, this one has not.
        return _renew(state, now)
    if own:
        sent_at = state.sent.get(lease.beat) if counts and lease.state == "held" else None
        if sent_at is None:
            return state, []
        later = {beat: at for beat, at in state.sent.items() if beat > lease.beat}
        return replace(state, sent=later, held_until=max(state.held_until, sent_at + HOLD_S)), []
    if _goes_before(state, lease, counts=counts):
        return replace(state, phase=LeasePhase.LOST, by=lease), []
    # Whoever connects now must find the holder's own message.
    return _renew(state, now)


def _heard_claiming(
    state: LeaseState, lease: Lease, now: float, *, own: bool, counts: bool, retained: bool
) -> Step:
    if own and lease.state == "claimed":
        if state.settled_at != NOT_YET:
            return _answered(state, now) if retained else state, []
        if not counts:
            return replace(state, phase=LeasePhase.LOOKING, since=now), []
        return replace(state, settled_at=now + state.settle_s, next_at=now), []
    if own and lease.state == "held":
        confirmed, _ = _heard_holding(state, lease, now, own=True, counts=counts)
        return replace(confirmed, phase=LeasePhase.HELD if confirmed is not state else state.phase), []
    # A claim that waits for contradiction yields to any holder that lives.
    alive = state.settle_s > 0 and lease.state == "held" and not state.sent
    if not own and (alive or _goes_before(state, lease, counts=counts)):
        log = _based_on(_without_claim(state), lease, now)
        looking = replace(state, phase=LeasePhase.LOOKING, log=log, since=now)
        # What was said of holding it is taken back: it would make the other's folder an old one.
        return looking, [state.message("claimed", max(state.sent))] if state.sent else []
    return _answered(state, now) if retained else state, []


def _heard_looking(state: LeaseState, lease: Lease, now: float, *, counts: bool, retained: bool) -> Step:
    """Count the renewals of a living holder."""
    if retained:
        return _answered(state, now), []
    if lease.state != "held" or lease.holder.instance == state.me.instance:
        return state, []
    if not counts:
        # What the broker had retained was older than this.
        state = replace(state, log=_based_on(state.log, lease, now))
    return replace(state, beats=state.beats + 1), []


def _based_on(log: LeaseLog, lease: Lease, now: float) -> LeaseLog:
    if log.last is not None and lease.epoch < log.last.epoch:
        return log
    return LeaseLog(lease, lease.beat, now, live=True)


def _goes_before(state: LeaseState, lease: Lease, *, counts: bool) -> bool:
    """Whether another has the lease, or has had it since, by this message.

    It counts; or, where the broker has forgotten what was before or this server was cut off, its epoch is
    newer, or it came first.
    """
    if lease.state == "claimed":
        return counts
    if lease.state == "held":
        return counts or (lease.epoch, -lease.holder.since) > (state.epoch, -state.me.since)
    return lease.epoch > state.epoch


def _tick(state: LeaseState, now: float, alive: bool | None) -> Step:
    if not state.connected:
        return state, []
    match state.phase:
        case LeasePhase.LOOKING:
            return _look(state, now, alive)
        case LeasePhase.CLAIMING if state.settled_at == NOT_YET:
            return _insist(state, now)
        case LeasePhase.MUTE if now >= state.next_at:
            asked = replace(state, next_at=now + MUTE_S)
            return asked, [asked.message("claimed", state.log.beat + 1)]
        case LeasePhase.CLAIMING if now >= max(state.settled_at, state.next_at):
            return _settle(state, now)
        case LeasePhase.HELD if now >= state.next_at:
            return _renew(state, now)
        case _:
            return state, []


def _look(state: LeaseState, now: float, alive: bool | None) -> Step:
    last = state.log.last
    if now < state.since + LOOK_S:
        return state, []
    if last is None:
        forgotten = state.had_standby and now < state.since + FORGOTTEN_S
        return (state, []) if state.follows or forgotten else _claim(state, now)
    if _is_own(state, last) and (state.cut_off or not state.follows):
        return _claim(state, now)
    if state.follows:
        due = last.state != "over" and state.may_follow and _vacant(state, last, now, alive, grace_s=GRACE_S)
        return _claim_read(state, last, now, alive) if due else (_unasked(state), [])
    vacant = _vacant(state, last, now, alive, grace_s=SILENCE_S)
    if vacant:
        if _is_behind(state, last):
            return replace(state, phase=LeasePhase.TAKEN, by=last, behind=True), []
        return _claim_read(state, last, now, alive)
    state = _unasked(state)
    if alive or (alive is None and state.beats):
        return replace(state, phase=LeasePhase.TAKEN, by=last), []
    return state, []


def _is_behind(state: LeaseState, last: Lease) -> bool:
    """Whether another folder has a later state of the run."""
    same_run = state.run is not None and state.run == last.run
    return same_run and last.newest_served > state.first_epoch and not last.holder.is_of(state.me)


def _vacant(state: LeaseState, last: Lease, now: float, alive: bool | None, *, grace_s: float) -> bool:
    """Whether nobody holds the lease: given back, its process is gone, or nothing was heard for too long."""
    if last.state in ("free", "over") or alive is False:
        return True
    heard_at = max(state.log.heard_at, state.since)
    return now >= heard_at + (grace_s if last.state == "lost" else SILENCE_S)


def _claim_read(state: LeaseState, last: Lease, now: float, alive: bool | None) -> Step:
    """Claim; unless the lease was given back or its holder is gone, only after reading what is retained."""
    if last.state in ("free", "over") or alive is False or now >= state.stands_at:
        return _claim(state, now)
    return _read_back(state, now)


def _read_back(state: LeaseState, now: float) -> Step:
    if state.asked and now < state.next_at:
        return state, []
    return replace(state, asked=True, next_at=now + RENEW_S), [ReadBack()]


def _answered(state: LeaseState, at: float) -> LeaseState:
    return replace(state, stands_at=at, next_at=at) if state.asked else state


def _unasked(state: LeaseState) -> LeaseState:
    return replace(state, asked=False, stands_at=NOT_YET) if state.asked else state


def _claim(state: LeaseState, now: float) -> Step:
    last = state.log.last
    epoch = state.first_epoch
    if last is not None:
        epoch = max(epoch, last.epoch + (0 if last.holder.is_of(state.me) else 1))
    claiming = replace(
        state,
        phase=LeasePhase.CLAIMING,
        epoch=epoch,
        synced="",
        since=now,
        settle_s=0.0 if last is None or (state.log.live and last.state in ("free", "over")) else SETTLE_S,
        settled_at=NOT_YET,
        asked=False,
        stands_at=NOT_YET,
        next_at=now + RENEW_S,
        sent={},
        served=None if last is None else last.newest_served,
    )
    return claiming, [claiming.message("claimed", state.log.beat + 1)]


def _insist(state: LeaseState, now: float) -> Step:
    """Repeat a claim that has not come back: it may be lost, or the broker passes nothing on.

    A standby knows that it does: it has heard whom it follows.
    """
    if now >= state.since + MUTE_S and not state.follows:
        return replace(state, phase=LeasePhase.MUTE), []
    if now < state.next_at:
        return state, []
    return replace(state, next_at=now + RENEW_S), [state.message("claimed", state.log.beat + 1)]


def _settle(state: LeaseState, now: float) -> Step:
    """Hold the lease if the broker retains no contradiction."""
    if state.settle_s == 0.0 or now >= state.stands_at:
        return _renew(state, now)
    return _read_back(state, now)


def _renew(state: LeaseState, now: float) -> Step:
    beat = state.log.beat + 1
    renewed = replace(state, sent={beat: now, **state.sent}, next_at=now + RENEW_S)
    return renewed, [renewed.message("held", beat)]
