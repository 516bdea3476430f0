"""A claim, step by step, from its publication to the first renewal that comes back.

Claiming     the claim is published, and repeated
   -> Settling     it comes back and counts: `_settle`
   -> Looking      it comes back and does not count: `_look_again`
   -> Mute         it does not come back: `_fall_mute`
Settling     nobody has contradicted the claim so far
   -> Verifying    nobody has within `SETTLE_S`: `_verify`
   -> Confirming   nobody can, since the lease was given back or never held: `_confirm`
Verifying    what the broker retains is read: a holder that lives has replaced the claim
   -> Confirming   it retains no contradiction: `_confirm`
Confirming   renewals are published
   -> Held         the first one comes back: `_hold`
each of them
   -> Looking      another server goes before: `_yield`; or the connection ends: `cut_off`
"""

from dataclasses import replace

from edge_server.transport.lease import holding, phases
from edge_server.transport.lease.state import (
    MUTE_S,
    RENEW_S,
    SETTLE_S,
    LeaseState,
    Received,
    Step,
    goes_before,
    has_read,
    read_back,
    take_answer,
)
from schemas.messages import Lease


def on_message(state: LeaseState, phase: phases.ClaimStep, received: Received, now: float) -> Step:
    """Another server's message may end the claim, this server's own one may take it a step further."""
    if not received.own and _must_yield(state, phase, received):
        return _yield(state, phase, received.lease, now)
    match phase:
        case phases.Claiming() if received.is_own("claimed") and received.counts:
            return _settle(state, phase, now), []
        case phases.Claiming() if received.is_own("claimed"):
            return _look_again(state, phase, now), []
        case phases.Verifying() if received.retained and not received.is_own("held"):
            return take_answer(state, now), []
        case phases.Confirming() if received.is_own("held"):
            return _hold(state, phase, received), []
        case phases.Confirming() if received.retained and state.reading is not None:
            # The broker retains another message than the last renewal.
            return replace(state, phase=replace(phase, next_at=now)), []
    return state, []


def on_tick(state: LeaseState, phase: phases.ClaimStep, now: float) -> Step:
    match phase:
        case phases.Claiming():
            return _insist(state, phase, now)
        case phases.Settling(claim, until) if now >= until:
            return _verify(state, claim, now) if claim.contestable else _confirm(state, claim, now)
        case phases.Verifying(claim):
            return _confirm(state, claim, now) if has_read(state, now) else read_back(state, now)
        case phases.Confirming() if now >= phase.next_at:
            return holding.renew(state, phase, now)
    return state, []


def cut_off(state: LeaseState, phase: phases.ClaimStep, now: float) -> LeaseState:
    """A claim that the broker may have taken stands if it is the last message after the next connection."""
    looking = phases.Looking(now, phase.claim.lives)
    return replace(state, phase=looking, log=_without_claim(state), cut_off=True)


def _insist(state: LeaseState, claiming: phases.Claiming, now: float) -> Step:
    """Repeat a claim that has not come back: it may be lost, or the broker passes nothing on.

    A standby knows that it does: it has heard whom it follows.
    """
    if now >= claiming.since + MUTE_S and not state.follows:
        return _fall_mute(state, claiming), []
    if now < claiming.next_at:
        return state, []
    again = state.message("claimed", state.log.beat + 1, served=claiming.claim.served)
    return replace(state, phase=replace(claiming, next_at=now + RENEW_S)), [again]


def _fall_mute(state: LeaseState, claiming: phases.Claiming) -> LeaseState:
    return replace(state, phase=phases.Mute(claiming.claim.served, claiming.next_at))


def _settle(state: LeaseState, claiming: phases.Claiming, now: float) -> LeaseState:
    wait_s = SETTLE_S if claiming.claim.contestable else 0.0
    return replace(state, phase=phases.Settling(claiming.claim, now + wait_s))


def _look_again(state: LeaseState, phase: phases.ClaimStep, now: float) -> LeaseState:
    """Begin to look again, with what was heard before the claim."""
    return replace(state, phase=phases.Looking(now, phase.claim.lives))


def _verify(state: LeaseState, claim: phases.Claim, now: float) -> Step:
    return read_back(replace(state, phase=phases.Verifying(claim)), now)


def _confirm(state: LeaseState, claim: phases.Claim, now: float) -> Step:
    return holding.renew(state, phases.Confirming(claim, {}, now), now)


def _hold(state: LeaseState, confirming: phases.Confirming, received: Received) -> LeaseState:
    """The first renewal of this claim that comes back gives the lease."""
    beat = received.lease.beat
    if not received.counts or beat not in confirming.sent:
        return state
    unheld = phases.Held(phases.NEVER, confirming.sent, confirming.next_at)
    return replace(state, phase=holding.prolong(unheld, beat))


def _must_yield(state: LeaseState, phase: phases.ClaimStep, received: Received) -> bool:
    """Whether another server has the lease; before it is renewed, a claim yields to any holder that lives."""
    unsure = phase.claim.contestable and not isinstance(phase, phases.Confirming)
    if unsure and received.lease.state == "held":
        return True
    return goes_before(state, received.lease, counts=received.counts)


def _yield(state: LeaseState, phase: phases.ClaimStep, lease: Lease, now: float) -> Step:
    """Give the claim up, and take back the renewals: they would make the other's folder an old one."""
    log = _without_claim(state).based_on(lease, now)
    looking = replace(_look_again(state, phase, now), log=log)
    if not isinstance(phase, phases.Confirming):
        return looking, []
    return looking, [state.message("claimed", max(phase.sent), served=phase.claim.served)]


def _without_claim(state: LeaseState) -> phases.LeaseLog:
    return phases.LeaseLog() if state.is_own(state.log.last) else state.log
